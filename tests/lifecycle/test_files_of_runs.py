"""Files that a run writes into its working folder, from the folder to the database and into the next attempt."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import json
import logging
import os
from typing import TYPE_CHECKING, Any

import pytest

from lifecycle.running import kill_zygote_of, take_away
from lifecycle.test_fencing import until_logged
from lifecycle.test_retried_runs import with_retries
from lifecycle.waiting import until
from projects_for_tests.making import function_project
from store.whole import loaded
from windlass.deployments.registration import Registration
from windlass.errors import DatabaseUnavailable, StatementGivenUp, Unstorable
from windlass.kickoffs.files import CHUNK, FileLimits
from windlass.kickoffs.limits import Limits
from windlass.kickoffs.retries import Retries
from windlass.kickoffs.states import State
from windlass.lifecycle.worker_config import CrewEnvironment
from windlass.runner.run_folder import RunFolder
from windlass.store.deployments import DeploymentStore
from windlass.store.files import FileStore
from windlass.store.kickoffs import KickoffStore

if TYPE_CHECKING:
    from collections.abc import Collection
    from uuid import UUID

    from lifecycle.running import Place, World
    from windlass.runner.run_folder import Scan, Stamp
    from windlass.store.claiming import Claimed

CODE = '''
import os, pathlib, time

def run(steps, code, place=""):
    """Executes Python code."""
    found = {"os": os, "Path": pathlib.Path, "time": time, "steps": steps, "place": place, "hold": hold}
    exec(code, found)
    return found.get("result", "done")

def hold(place):
    """Until it is let go."""
    with pathlib.Path(place).joinpath("held").open("a") as held:
        held.write(f"{os.getpid()}\\n")
    while not pathlib.Path(place).joinpath("let go").exists():
        time.sleep(0.005)
'''
WRITE = "Path('report.md').write_text('# Tides'); Path('out').mkdir(); Path('out/data.csv').write_text('a,b')"


@pytest.fixture
async def written(world: World) -> World:
    """The world, with a crew that executes the code that it is given."""
    world.project = function_project(world.folder / "writes", CODE)
    world.registration = Registration.of(world.project)
    world.deployment = await world.registration.inspect(DeploymentStore(world.database), world.runner, {})
    return world


async def test_files_with_a_secret_in_their_names_are_not_stored(written: World) -> None:
    secret = "Xk29vQ7mT4zR8bLw"

    async def environment(_: Claimed) -> CrewEnvironment:
        return CrewEnvironment({"TOKEN": secret}, frozenset({"TOKEN"}))

    code = (
        "t = os.environ['TOKEN']; Path(f'a {t}.txt').write_text('1'); Path(t).mkdir(); Path(t, 'b').write_text('2'); "
        "Path(f'line\\n{t}').write_text('3'); Path('kept').write_text('4')"
    )
    await written.worker(environment)
    kickoff = await written.accept(code=code, steps=None)
    message = warnings(await written.ended(kickoff))["files_cut"]
    assert set(await files(written, kickoff)) == {"kept"}
    assert secret not in message
    assert "its name has the value of a secret variable" in message


async def files(world: World, kickoff: UUID) -> dict[str, bytes]:
    """Each file with its content, which is the one that its digest and size describe."""
    found = {}
    for file in await world.store.files.of(kickoff):
        chunks = [await world.store.files.chunk(kickoff, file.content, at) for at in range(-(-file.size // CHUNK))]
        found[file.path] = b"".join(chunk or b"" for chunk in chunks)
        assert hashlib.sha256(found[file.path]).digest() == file.sha256
        assert len(found[file.path]) == file.size
    return found


async def chunks(world: World) -> int:
    (row,) = await world.database.rows("SELECT count(*) AS n FROM file_chunks")
    return int(row["n"])


async def run(world: World, code: str, **inputs: Any) -> UUID:
    kickoff = await world.accept(code=code, **inputs)
    await world.ended(kickoff)
    return kickoff


def warnings(status: Any) -> dict[str, str]:
    return {warning["code"]: warning["message"] for warning in json.loads(status.warnings)}


async def test_files_of_a_run_are_kept_with_its_kickoff(written: World) -> None:
    await written.worker()
    kickoff = await run(written, WRITE)
    assert await files(written, kickoff) == {"report.md": b"# Tides", "out/data.csv": b"a,b"}
    status = await written.status(kickoff)
    assert status.file_count == 2
    assert [file["path"] for file in json.loads(status.files or "[]")] == ["out/data.csv", "report.md"]
    assert warnings(status) == {}


async def test_a_run_without_files_stores_nothing(written: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no further statement in the database."""

    async def fail(*_: object) -> None:
        raise AssertionError

    for name in ("append", "resume", "drop_contents", "of"):
        monkeypatch.setattr(FileStore, name, fail)
    monkeypatch.setattr("windlass.store.files.apply", fail)
    await written.worker()
    kickoff = await run(written, "steps.run('one', lambda: 1)")
    status = await written.status(kickoff)
    assert (status.state, status.file_count, status.files) == (State.SUCCESS, 0, None)


async def test_the_folder_is_scanned_only_at_steps_after_which_the_run_has_or_had_files(
    written: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    scanned: list[int] = []
    scan = RunFolder.scan

    async def counted(self: RunFolder, limits: FileLimits, known: Collection[str] = ()) -> Scan:
        scanned.append(len(known))
        return await scan(self, limits, known)

    monkeypatch.setattr(RunFolder, "scan", counted)
    await written.worker()
    written.project.joinpath("data.csv").write_text("the project's")
    nothing = "steps.run('a', lambda: 1); steps.run('b', lambda: 2)"
    await run(written, nothing)
    assert scanned == [0], "at the end"
    await run(written, f"{nothing}; steps.run('c', Path('report.md').touch); steps.run('d', Path('report.md').unlink)")
    assert scanned == [0, 0, 1, 0], "after c and d, and at the end"


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        ("raise ValueError('no')", "error"),
        ("os._exit(3)", "crashed"),
        ("time.sleep(600)", "timed_out"),
    ],
)
async def test_files_of_a_run_that_fails_help_to_find_the_cause(written: World, end: str, reason: str) -> None:
    await written.worker(limits=Limits(timeout=10.0 if reason == "timed_out" else None))
    kickoff = await run(written, f"{WRITE}; {end}")
    assert (await written.status(kickoff)).reason == reason
    assert (await files(written, kickoff)).keys() == {"report.md", "out/data.csv"}


async def test_files_of_a_stopped_run_are_kept(written: World, place: Place) -> None:
    await written.worker()
    kickoff = await written.accept(code=f"{WRITE}; hold(place)", place=str(place.folder))
    await place.until_held()
    await written.store.stop(kickoff)
    assert (await written.ended(kickoff)).state is State.CANCELLED
    assert (await files(written, kickoff)).keys() == {"report.md", "out/data.csv"}


async def test_what_is_no_file_of_the_run_is_not_kept(written: World) -> None:
    secret = written.folder / "secret"
    secret.write_text("outside")
    for path in ("data.csv", "changed.csv", "copied.csv", "knowledge/facts.md"):
        written.project.joinpath(path).parent.mkdir(exist_ok=True)
        written.project.joinpath(path).write_text("the project's")
        os.utime(written.project / path, (1_000_000_000, 1_000_000_000))
    await written.worker()
    kickoff = await run(
        written,
        "import shutil, socket, tempfile\n"
        "assert Path('data.csv').read_text() == \"the project's\"\n"
        f"Path({str(written.project)!r}, 'data.csv').write_text('a person edits the project meanwhile')\n"
        "Path('changed.csv').write_text('changed')\n"
        "Path('copied.csv').write_text('with an old time'); os.utime('copied.csv', (1, 1))\n"
        f"os.symlink({str(secret)!r}, 'link')\n"
        f"os.symlink({str(written.folder)!r}, 'folder')\n"
        "os.mkfifo('pipe')\n"
        "s = socket.socket(socket.AF_UNIX); s.bind('socket')\n"
        "tempfile.mkstemp()\n"
        f"Path({str(written.folder)!r}, 'elsewhere').write_text('x')\n"
        "(Path.home() / 'own').write_text('x')\n"
        "for name in ('__pycache__', '.cache', '.git', 'lib/node_modules'):\n"
        "    os.makedirs(name); Path(name, 'file').write_text('x')\n"
        "Path('module.pyc').write_text('x')\n"
        "Path('.gitignore').write_text('x')",
    )
    assert (await files(written, kickoff)).keys() == {"changed.csv", "copied.csv", ".gitignore"}


async def test_a_resumed_run_finds_the_files_of_finished_steps(written: World, place: Place) -> None:
    """The files of the interrupted step are not there: it runs again from its beginning. A file of the project that a
    step has changed stays changed.
    """
    (written.project / "data.txt").write_text("the project's")
    await written.worker()
    code = (
        "def one():\n"
        "    Path('out').mkdir(); Path('out/one.txt').write_text('one'); Path('log').write_text('1')\n"
        "    Path('data.txt').write_text('changed')\n"
        "def two():\n"
        "    seen = {str(p): p.read_text() for p in Path('.').rglob('*.txt')}\n"
        "    Path('log').open('a').write('2'); Path('two.txt').write_text('two')\n"
        "    if not Path(place, 'again').exists():\n"
        "        Path(place, 'again').touch(); Path(place, 'held').write_text(str(os.getpid())); time.sleep(60)\n"
        "    return seen\n"
        "steps.run('one', one)\n"
        "result = steps.run('two', two)"
    )
    kickoff = await written.accept(code=code, place=str(place.folder))
    kill_zygote_of((await place.until_held())[0])
    await until_lost(written, kickoff)
    finished = {"out/one.txt": b"one", "data.txt": b"changed"}
    assert await files(written, kickoff) == {**finished, "log": b"1"}
    await written.database.execute("UPDATE kickoffs SET run_at = now() WHERE run_at IS NOT NULL")
    status = await written.ended(kickoff)
    assert (status.state, status.attempt) == (State.SUCCESS, 2)
    assert loaded(status.structured) == {"out/one.txt": "one", "data.txt": "changed"}
    assert await files(written, kickoff) == {**finished, "log": b"12", "two.txt": b"two"}
    assert await chunks(written) == 4


async def until_lost(world: World, kickoff: UUID) -> None:
    async def is_waiting() -> bool:
        return (await world.status(kickoff)).state is State.PENDING and await world.losses(kickoff) > 0

    await until(is_waiting)


async def test_a_failed_attempt_that_is_repeated_leaves_no_files(written: World, place: Place) -> None:
    await with_retries(written, attempts=2, backoff=0.01)
    await written.worker()
    code = (
        "first = not Path(place, 'again').exists()\n"
        "Path(place, 'again').touch(); Path('first' if first else 'second').write_text('x')\n"
        "assert not first"
    )
    kickoff = await run(written, code, place=str(place.folder))
    assert (await written.status(kickoff)).attempt == 2
    assert (await files(written, kickoff)).keys() == {"second"}


async def test_only_changed_files_are_stored_again_at_the_next_step(written: World) -> None:
    await written.worker()
    kickoff = await run(
        written,
        "steps.run('one', lambda: [Path(name).write_text(name) for name in ('a', 'b', 'c')])\n"
        "steps.run('two', lambda: Path('a').write_text('two'))\n"
        "steps.run('three', lambda: Path('c').unlink())",
    )
    assert await files(written, kickoff) == {"a": b"two", "b": b"b"}
    assert await chunks(written) == 2
    rows = await written.database.rows("SELECT path FROM files ORDER BY stored_at DESC")
    assert [row["path"] for row in rows] == ["a", "b"]


async def test_files_over_the_limits_are_left_out_with_a_warning(written: World) -> None:
    await written.worker(files=FileLimits(count=3, size=100, total=250))
    kickoff = await run(
        written,
        "for number in range(5): Path(f'small-{number}').write_text('x')\n"
        "Path('huge').write_text('x' * 101); Path('a').write_text('x' * 100); Path('b').write_text('x' * 100)\n"
        "Path('c').write_text('x' * 100)",
    )
    assert (await files(written, kickoff)).keys() == {"a", "b", "small-0"}
    message = warnings(await written.status(kickoff))["files_cut"]
    assert "6 files of the run are not stored" in message
    assert "huge (it has 101 bytes, more than WINDLASS_STORED_FILE_SIZE of 100 bytes)" in message
    assert message.endswith("1 more.")


async def test_files_of_several_chunks_are_whole(written: World) -> None:
    await written.worker()
    kickoff = await run(written, "Path('large').write_bytes(os.urandom(1_000_000)); Path('empty').touch()")
    found = await files(written, kickoff)
    assert {path: len(content) for path, content in found.items()} == {"large": 1_000_000, "empty": 0}


async def test_a_server_that_stores_no_files_keeps_none(written: World) -> None:
    await written.worker(files=FileLimits(count=0))
    assert await files(written, await run(written, WRITE)) == {}


async def test_a_run_that_was_taken_away_stores_no_files(
    written: World, place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "windlass")
    await written.worker(slots=1, lease=600.0, renewal=600.0)
    await written.accept(code=f"{WRITE}; hold(place)", place=str(place.folder))
    await place.until_held()
    await take_away(written)
    place.let_go()
    await until_logged("kickoff.taken", caplog)
    assert await chunks(written) == 0
    assert await written.database.rows("SELECT FROM files") == []


async def test_a_result_is_not_lost_because_its_files_can_not_be_stored(
    written: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a disk that is full."""

    async def refuse(*_: object) -> bool:
        raise StatementGivenUp("The database could not complete the statement.")

    monkeypatch.setattr(FileStore, "append", refuse)
    monkeypatch.setattr("windlass.lifecycle.background_tasks.BETWEEN_ATTEMPTS", 0.01)
    await written.worker()
    status = await written.ended(await written.accept(code=f"{WRITE}; result = 'found'"))
    assert (status.state, loaded(status.output), status.files) == (State.SUCCESS, "found", None)
    assert "could not be stored" in warnings(status)["files_not_stored"]


async def test_a_worker_that_stops_gives_up_the_files_of_an_ended_run_and_keeps_its_result(
    written: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database does not take the files, however often it is asked."""
    asked = asyncio.Event()

    async def refuse(*_: object) -> bool:
        asked.set()
        raise DatabaseUnavailable("The database does not answer.")

    monkeypatch.setattr(FileStore, "append", refuse)
    worker = await written.worker()
    kickoff = await written.accept(code=f"{WRITE}; result = 'found'")
    await asyncio.wait_for(asked.wait(), 60)
    await worker.stop()
    status = await written.status(kickoff)
    assert (status.state, loaded(status.output)) == (State.SUCCESS, "found")
    assert "the worker stopped" in warnings(status)["files_not_stored"]


@pytest.mark.parametrize("name", ["append", "resume"])
async def test_the_database_may_be_away_while_files_are_stored_and_restored(
    written: World, place: Place, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    await with_retries(written, attempts=2, backoff=0.01)
    monkeypatch.setattr("windlass.lifecycle.background_tasks.BETWEEN_ATTEMPTS", 0.01)
    original, left = getattr(FileStore, name), [3]

    async def fail_at_first(*arguments: object) -> object:
        if left[0]:
            left[0] -= 1
            raise DatabaseUnavailable("The database does not answer.")
        return await original(*arguments)

    monkeypatch.setattr(FileStore, name, fail_at_first)
    await written.worker()
    code = (
        "steps.run('one', lambda: Path('one').write_text('1') and 1)\n"
        "first = not Path(place, 'again').exists()\n"
        "Path(place, 'again').touch()\n"
        "assert not first"
    )
    kickoff = await run(written, code, place=str(place.folder))
    assert (await written.status(kickoff)).attempt == 2
    assert await files(written, kickoff) == {"one": b"1"}
    assert left == [0]


async def test_files_that_can_not_be_restored_stay_with_the_kickoff(
    written: World, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a disk that is full."""

    async def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    await with_retries(written, attempts=2, backoff=0.01)
    monkeypatch.setattr(RunFolder, "write", refuse)
    await written.worker()
    code = (
        "steps.run('one', lambda: Path('one').write_text('1') and 1)\n"
        "first = not Path(place, 'again').exists()\n"
        "Path(place, 'again').touch(); Path('two').write_text('2')\n"
        "assert not first"
    )
    kickoff = await run(written, code, place=str(place.folder))
    assert await files(written, kickoff) == {"one": b"1", "two": b"2"}
    assert "No space left on device" in warnings(await written.status(kickoff))["files_not_restored"]


async def test_files_that_change_at_each_step_are_stored_a_bounded_number_of_times(written: World) -> None:
    await written.worker(files=FileLimits(total=1000))
    code = "for number in range(9): steps.run('write', lambda n: Path('log').write_text(str(n) * 900), number)"
    kickoff = await run(written, code)
    assert await files(written, kickoff) == {"log": b"8" * 900}
    assert await chunks(written) == 1


async def test_files_that_are_only_touched_at_each_step_are_read_a_bounded_number_of_times(
    written: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, read = RunFolder.digest, []

    async def digest(self: RunFolder, path: str, stamp: Stamp) -> bytes:
        read.append(path)
        return await original(self, path, stamp)

    monkeypatch.setattr(RunFolder, "digest", digest)
    await written.worker(files=FileLimits(total=1000))
    await run(
        written,
        "Path('log').write_text('x' * 900)\nfor number in range(9): steps.run('touch', lambda: os.utime('log'))",
    )
    assert read == ["log"] * 4


async def test_a_listed_file_stays_readable_when_its_next_content_can_not_be_stored(
    written: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new content of the listed file is stored; the disk is full at the next file."""
    original, left = FileStore.append, [2]

    async def refuse_the_third(*arguments: Any) -> bool:
        if not left[0]:
            raise StatementGivenUp("The database could not complete the statement.")
        left[0] -= 1
        return await original(*arguments)

    monkeypatch.setattr(FileStore, "append", refuse_the_third)
    monkeypatch.setattr("windlass.lifecycle.background_tasks.BETWEEN_ATTEMPTS", 0.01)
    await written.worker()
    kickoff = await run(
        written,
        "steps.run('one', lambda: Path('report').write_text('first'))\n"
        "Path('report').write_text('second'); Path('table').write_text('x')",
    )
    assert "files_not_stored" in warnings(await written.status(kickoff))
    assert await files(written, kickoff) == {"report": b"first"}
    assert await chunks(written) == 1


async def test_limits_do_not_remove_files_that_are_stored_already(written: World) -> None:
    await written.worker(files=FileLimits(count=2, size=100))
    kickoff = await run(
        written,
        "steps.run('one', lambda: [Path(name).write_text('x') for name in ('b', 'c')])\n"
        "Path('c').write_text('x' * 101); Path('a').write_text('x')",
    )
    assert await files(written, kickoff) == {"b": b"x", "c": b"x"}
    message = warnings(await written.status(kickoff))["files_cut"]
    assert message.startswith("2 files of the run are not stored")


async def test_a_file_that_was_restored_in_part_does_not_replace_the_stored_one(
    written: World, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = RunFolder.write

    async def refuse_the_second_chunk(self: RunFolder, path: str, at: int, chunk: bytes) -> None:
        if at:
            raise OSError(errno.ENOSPC, "No space left on device")
        await original(self, path, at, chunk)

    await with_retries(written, attempts=2, backoff=0.01)
    monkeypatch.setattr(RunFolder, "write", refuse_the_second_chunk)
    await written.worker()
    code = (
        "steps.run('one', lambda: [Path('a').write_text('1'), Path('b').write_text('x' * 300_000)])\n"
        "first = not Path(place, 'again').exists()\n"
        "Path(place, 'again').touch()\n"
        "assert not first\n"
        "Path('a').unlink()\n"
        "result = Path('b').exists()"
    )
    kickoff = await run(written, code, place=str(place.folder))
    status = await written.status(kickoff)
    assert (status.state, loaded(status.structured)) == (State.SUCCESS, False)
    assert await files(written, kickoff) == {"b": b"x" * 300_000}
    assert "files_not_restored" in warnings(status)


async def test_a_file_whose_part_is_missing_is_not_restored(
    written: World, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def missing(*_: object) -> None:
        return None

    await with_retries(written, attempts=2, backoff=0.01)
    monkeypatch.setattr(FileStore, "chunk", missing)
    await written.worker()
    code = (
        "steps.run('one', lambda: Path('one').write_text('1') and 1)\n"
        "first = not Path(place, 'again').exists()\n"
        "Path(place, 'again').touch()\n"
        "assert not first"
    )
    status = await written.status(await run(written, code, place=str(place.folder)))
    assert "a part of a file is missing" in warnings(status)["files_not_restored"]
    assert status.file_count == 1


@pytest.mark.parametrize("files_too", [False, True])
async def test_files_are_kept_when_the_result_can_not_be_stored(
    written: World, monkeypatch: pytest.MonkeyPatch, *, files_too: bool
) -> None:
    original = KickoffStore.settle

    async def settle(*arguments: Any, changes: Any = None, **others: Any) -> State | None:
        if arguments[3].output is not None or (files_too and changes):
            raise Unstorable("It is too large.", "Return less.")
        return await original(*arguments, changes=changes, **others)

    monkeypatch.setattr(KickoffStore, "settle", settle)
    await written.worker()
    kickoff = await run(written, f"{WRITE}; result = 'found'")
    status = await written.status(kickoff)
    assert (status.state, status.reason) == (State.FAILED, "limit")
    assert (await files(written, kickoff)).keys() == (set() if files_too else {"report.md", "out/data.csv"})
    assert warnings(status).keys() == ({"files_not_stored"} if files_too else set())
    assert await chunks(written) == (0 if files_too else 2)


async def test_whether_another_attempt_follows_is_decided_once(written: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pause before it is partly random, and may be longer than the time that is left."""
    pauses = iter([0.01])
    monkeypatch.setattr(Retries, "pause", lambda *_: next(pauses, None))
    await written.worker()
    kickoff = await run(written, f"{WRITE}; raise ValueError('no')")
    assert (await written.status(kickoff)).attempt == 2
    assert (await files(written, kickoff)).keys() == {"report.md", "out/data.csv"}


async def test_files_that_were_left_to_another_attempt_are_missed_with_a_warning(
    written: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a stop is requested at that moment."""

    async def refuse(*_: object, pause: float) -> bool:
        assert pause
        return False

    monkeypatch.setattr(KickoffStore, "retry", refuse)
    await with_retries(written, attempts=2, backoff=0.01)
    await written.worker()
    status = await written.status(await run(written, f"{WRITE}; raise ValueError('no')"))
    assert (status.state, status.attempt, status.files) == (State.FAILED, 1, None)
    assert "another attempt was to follow" in warnings(status)["files_not_stored"]
