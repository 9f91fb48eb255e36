"""Stores the files that a run writes, at the end of each step and of the run, and restores them for the next attempt.

The files of a finished step are committed with its journal entry. A later attempt, which does not run the step again,
finds them in its working folder. The files of an unfinished step are stored only when the kickoff ends.
"""

# See docs/decisions/journal.md#files-are-committed-with-journal-entries
# See docs/decisions/journal.md#chunks-of-files-are-stored-before-their-list

from __future__ import annotations

import errno
import hashlib
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from windlass import log
from windlass.errors import DatabaseUnavailable, Unstorable
from windlass.kickoffs.files import CHUNK, FileChanges, StoredFile, media_type_of
from windlass.kickoffs.ids import new_id
from windlass.kickoffs.tasks import Warning_
from windlass.lifecycle.background_tasks import LARGE, until_stored, until_the_database_answers
from windlass.lifecycle.run_recorder import NoLongerOurs
from windlass_child.masking.secret_values import MASK, SecretValues

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from windlass.kickoffs.files import FileLimits, LeftOut
    from windlass.runner.run_folder import RunFolder, Scan, Stamp
    from windlass.store.claiming import Claimed
    from windlass.store.kickoffs import KickoffStore

AGAIN = 2
"""How often, as a multiple of the limit of all files, the files of one attempt are stored at the ends of steps, and
compared with what is stored. Files that change at each step are stored only at the end of the run after that.
"""
NOT_RESTORED = "The files of earlier steps could not be written into the working folder of the new attempt"

logger = log.logger(__name__)


class NotStored(Exception):  # noqa: N818 - describes the files
    """Reports that the files can't be stored now. The message is for the person who started the kickoff."""


@dataclass(slots=True)
class _Known:
    """A stored file. `stamp` is None if the file may change without a new stamp."""

    stored: StoredFile
    stamp: Stamp | None = None


class RunFiles:
    """Follows the files of one attempt. `warn` gets a warning when files are not stored.

    `_uploaded` are the contents of changes that were not yet returned. Contents of returned changes may be listed.
    """

    def __init__(
        self, store: KickoffStore, claimed: Claimed, limits: FileLimits, warn: Callable[[Warning_], None]
    ) -> None:
        self._store = store
        self._kickoff: UUID = claimed.id
        self._attempt = claimed.attempt
        self._limits = limits
        self._warn = warn
        self._folder: RunFolder | None = None
        self._known: dict[str, _Known] = {}
        self._put: dict[str, StoredFile] = {}
        self._unused: list[UUID] = []
        self._uploaded: list[UUID] = []
        self._not_restored: set[str] = set()
        self._bytes = 0
        self._compared = 0
        self._hurried = False
        self._secrets = SecretValues({})

    def hide(self, secrets: SecretValues) -> None:
        """Stores no file with one of these values in its name, and masks them in warnings."""
        self._secrets = secrets

    async def begin(self, folder: RunFolder) -> None:
        """Writes the files of finished steps into the folder of a later attempt."""
        if self._limits.count:
            self._folder = folder
        if self._attempt > 1:
            files = await until_the_database_answers(lambda: self._store.files.resume(self._kickoff, self._attempt))
            self._known = {file.path: _Known(file) for file in files}
            self._not_restored = set(self._known)
            try:
                for file in files:
                    await self._restore(folder, file)
                    self._not_restored.discard(file.path)
            except OSError as error:
                self._warn(Warning_("files_not_restored", f"{NOT_RESTORED}: {_reason(error)}."))

    async def at_step(self, *, found: bool) -> FileChanges | None:
        """Stores the content of changed files at the end of a step. Returns the changes, to be committed with it.

        `found` is whether the run's process found files in the folder. Without them and without stored files, the
        folder is not scanned.
        """
        if self._folder is None or max(self._bytes, self._compared) > AGAIN * self._limits.total:
            return None
        if not found and not self._known:
            return None
        try:
            changes, _ = await self._changes(self._folder)
        except NotStored:
            return None  # `at_end` tries again, and warns
        return changes

    async def at_end(self) -> FileChanges | None:
        """Stores the content of changed files at the end of the run. Returns the changes, to be committed with it."""
        if self._folder is None:
            return None
        try:
            changes, left_out = await self._changes(self._folder)
        except NotStored as error:
            await self.give_up(str(error))
            return None
        if left_out.count:
            self._warn(Warning_("files_cut", self._secrets.masked(left_out.words())))
        return changes

    def hurry(self) -> None:
        """Makes `at_end` give up: the worker stops, and the result is worth more than the files."""
        self._hurried = True

    async def give_up(self, why: str, changes: FileChanges | None = None) -> None:
        """Warns that the last changes are not stored, and removes their contents. `changes` were not committed."""
        if self._folder is None:
            return
        self._warn(Warning_("files_not_stored", f"The last changes of the run's files could not be stored: {why}"))
        logger.event("files.not_stored", kickoff_id=self._kickoff, attempt=self._attempt, why=why)
        contents = [*self._uploaded, *(file.content for file in (changes.put if changes else ()))]
        with suppress(DatabaseUnavailable):  # the next attempt or retention removes them
            await self._store.files.drop_contents(self._kickoff, contents)

    async def _restore(self, folder: RunFolder, file: StoredFile) -> None:
        try:
            for position in range(max(1, -(-file.size // CHUNK))):
                await folder.write(file.path, position * CHUNK, await self._part(file, position))
        except FileExistsError:
            raise
        except OSError:
            with suppress(OSError):
                await folder.remove(file.path)
            raise

    async def _part(self, file: StoredFile, position: int) -> bytes:
        read = partial(self._store.files.chunk, self._kickoff, file.content, position)
        chunk = await until_the_database_answers(read) or b""
        if len(chunk) != min(CHUNK, file.size - position * CHUNK):
            raise OSError(errno.EIO, "a part of a file is missing")
        return chunk

    async def _changes(self, folder: RunFolder) -> tuple[FileChanges | None, LeftOut]:
        """Returns all changes since the last ones that were returned."""
        try:
            scan = await folder.scan(self._limits, self._known)
            for path, stamp in scan.files.items():
                if self._secrets.are_in(path):
                    scan.left_out.add(MASK, "its name has the value of a secret variable")
                    continue
                await self._follow(folder, scan, path, stamp)
        except TimeoutError:
            raise NotStored("the working folder did not answer in time.") from None
        except OSError as error:
            raise NotStored(f"the working folder can't be read: {_reason(error)}.") from None
        gone = self._known.keys() - scan.seen - self._not_restored if scan.whole else set()
        for path in gone:
            self._unused.append(self._known.pop(path).stored.content)
            self._put.pop(path, None)
        put, self._put = list(self._put.values()), {}
        unused, self._unused = self._unused, []
        self._uploaded = []
        changed = bool(put or gone or unused)
        return FileChanges(len(self._known), put, sorted(gone), unused) if changed else None, scan.left_out

    async def _follow(self, folder: RunFolder, scan: Scan, path: str, stamp: Stamp) -> None:
        """Stores the content of the file if it changed."""
        known = self._known.get(path)
        settled = stamp if scan.is_settled(stamp) else None
        if known and (known.stamp == stamp or await self._is_same(folder, known.stored, stamp)):
            known.stamp = settled
            return
        try:
            file = await self._upload(folder, path, stamp)
        except TimeoutError:
            raise
        except OSError as error:
            scan.left_out.add(path, f"it can't be read: {_reason(error)}")
            return
        if known:
            self._unused.append(known.stored.content)
        self._known[path] = _Known(file, settled)
        self._put[path] = file
        self._not_restored.discard(path)

    async def _is_same(self, folder: RunFolder, stored: StoredFile, stamp: Stamp) -> bool:
        if stored.size != stamp.size:
            return False
        self._compared += stamp.size
        try:
            return await folder.digest(stored.path, stamp) == stored.sha256
        except OSError:
            return False

    async def _upload(self, folder: RunFolder, path: str, stamp: Stamp) -> StoredFile:
        content, digest, at, position = new_id(), hashlib.sha256(), 0, 0
        self._unused.append(content)  # until it is a file's
        self._uploaded.append(content)
        while chunk := await folder.read(path, stamp, at, digest):
            await self._append(content, position, chunk)
            at, position = at + len(chunk), position + 1
        self._unused.remove(content)
        return StoredFile(path, at, digest.digest(), media_type_of(path), content)

    async def _append(self, content: UUID, position: int, chunk: bytes) -> None:
        async def append() -> None:
            if self._hurried:
                raise NotStored("the worker stopped.")
            if not await self._store.files.append(self._kickoff, self._attempt, content, position, chunk):
                raise NoLongerOurs

        try:
            await until_stored(append, self._store.answers, LARGE + 1)
        except Unstorable as error:
            raise NotStored(error.message) from error
        self._bytes += len(chunk)


def _reason(error: OSError) -> str:
    return error.strerror or "it took too long"
