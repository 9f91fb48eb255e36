"""Fetches the files of a project from a git repository, without running any code or configuration of it.

The repository is fetched without a working tree, and its files are read as an archive, with the checks of an upload. So
no hook, filter, submodule or link of the repository has an effect on this machine.
"""

# See docs/decisions/deployments.md#a-repository-is-fetched-bare

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
from base64 import b64encode
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from windlass.errors import ProjectError
from windlass.projects.archive import CHUNK, LARGEST, MB, check_name
from windlass.projects.git_address import Address, parsed, resolved
from windlass.projects.snapshot import Snapshot, accept, content_of
from windlass.projects.uv import Abort
from windlass.removal import remove

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from windlass.accounts import Account

SECONDS = 300.0
"""The longest time for the whole fetch."""
LARGEST_FETCH, LARGEST_MEMORY = 500 * MB, 2048 * MB
"""Bytes of one file that git writes, such as the pack of all objects, and of git's memory."""
LIMITED = f'ulimit -f {LARGEST_FETCH // 512}; ulimit -v {LARGEST_MEMORY // 1024} 2>/dev/null; exec "$@"'
MOST_ERRORS = 64 * 1024
REF = re.compile(r"[A-Za-z0-9_](?:[\w./+@#-]*[\w+#-])?")
"""Names of branches and tags that are no option and no pattern of git."""
PASSED = re.compile(r"\w+_proxy|SSL_CERT_FILE|SSL_CERT_DIR|GIT_SSL_CAINFO|PATH|TZ", re.IGNORECASE)
"""Variables that git gets of the server's environment."""
USERNAME, PASSWORD = "GIT_USERNAME", "GIT_PASSWORD"
"""Variables of a deployment with the credentials for its repository."""
SSH_KEY = "GIT_SSH_KEY"
"""The variable of a deployment with its private key for SSH."""
NEEDS_CREDENTIALS = (
    f"For a private repository, set the variables {USERNAME} and {PASSWORD} of the deployment, or {SSH_KEY} for SSH."
)
KNOWN_HOSTS = "/etc/ssh/ssh_known_hosts"
"""The keys of hosts that the operator of the worker knows. Those of a user count for nothing."""
NO_IDENTITY_OF_THE_SERVER = (
    "ssh -F /dev/null -o BatchMode=yes -o StrictHostKeyChecking=yes -o UserKnownHostsFile=/dev/null "
    f"-o GlobalKnownHostsFile={KNOWN_HOSTS} -o UpdateHostKeys=no -o IdentitiesOnly=yes -o IdentityAgent=none "
    "-o PKCS11Provider=none -o PreferredAuthentications=publickey -o GSSAPIAuthentication=no "
    "-o HostbasedAuthentication=no -o ForwardAgent=no -o ClearAllForwardings=yes -o ConnectTimeout=20"
)
"""ssh finds keys and files in the home of the system account, not in HOME: each is switched off."""
CONFIG = """[core]
	hooksPath = /dev/null
	bigFileThreshold = 50m
[credential]
	helper =
[http]
	followRedirects = false
	lowSpeedLimit = 1000
	lowSpeedTime = 30
[fetch]
	unpackLimit = 1
	recurseSubmodules = false
[gc]
	auto = 0
[maintenance]
	auto = false
[safe]
	directory = *
"""
FAILURES = (
    (r"couldn't find remote ref|not our ref|no such remote ref|unadvertised object",
     "it has no branch, tag or commit of this name",
     "Check the name. A commit needs all of its 40 digits."),
    (r"returned error: 30\d|unable to update url base from redirection",
     "its server redirects to another address",
     "Give the address that it leads to, for example with .git at its end."),
    (r"could not read Username|Authentication failed|returned error: 40[13]|Permission denied \(publickey",
     "its server asks for other credentials",
     NEEDS_CREDENTIALS),
    (r"Host key verification failed",
     "the server's SSH host key is not known to this machine",
     "Add it to /etc/ssh/ssh_known_hosts on each worker, for example with ssh-keyscan, and compare it."),
    (r"No user exists for uid",
     "SSH needs a user with an account, and packages are built by a number",
     "Make the user on each worker: useradd --system --create-home windlass-build"),
    ((r"(?m:^(?>.*?[Rr]epository )(?>.*?not found))|returned error: 404|does not appear to be a git repository|"
      r"not found: did you run"),
     "there is no repository at this address, or it is private",
     NEEDS_CREDENTIALS),
    (r"[Ff]ile too large|File size limit|signal 25|[Oo]ut of memory|mmap failed",
     f"it is larger than {LARGEST_FETCH // MB} MB",
     "Deploy a smaller repository, or the folder from your machine."),
    (r"No space left on device", "the disk of the worker is full", "Free space on the disk of its temporary folder."),
)  # fmt: skip
"""Patterns of git's messages, each with the reason and the hint for people."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """The snapshot of a repository's files at a commit."""

    snapshot: Snapshot
    commit: str


def check_origin(url: str, ref: str | None, subfolder: str | None, *, allow_local: bool) -> None:
    """Raises ProjectError for an address, a name or a folder that is not fetched. Uses no network.

    An address with credentials is refused too, because addresses are stored and shown.
    """
    parsed(url, allow_local=allow_local)
    if ref is not None and (not REF.fullmatch(ref) or ".." in ref or "@{" in ref):
        raise ProjectError(f"{ascii(ref)[:200]} is no name of a branch, a tag or a commit.", "Give one of these.")
    if subfolder:
        check_name(subfolder.strip("/"))


def fetch(
    url: str,
    ref: str | None,
    subfolder: str | None,
    to: Path,
    *,
    allow_local: bool,
    report: Callable[[str], None],
    account: Account | None = None,
    environment: Mapping[str, str] | None = None,
    variables: Mapping[str, str] | None = None,
    abort: Abort | None = None,
) -> Fetched:
    """Writes the snapshot of a folder of the repository to the file `to`. Takes minutes: call it in a thread.

    `ref` is a branch, a tag or a whole commit id; None is the default branch. `allow_local` is the setting
    WINDLASS_GIT_ALLOW_PRIVATE. git runs as `account`, None for this process's user. `environment` are the variables of
    this process, and `variables` those of the deployment, of which the credentials are used. `abort` ends git
    from another thread. Raises ProjectError.
    """
    check_origin(url, ref, subfolder, allow_local=allow_local)
    git = shutil.which("git")
    if git is None:
        raise ProjectError("git is not installed on the worker.", "Install it, or deploy the folder itself.")
    given, address = variables or {}, parsed(url, allow_local=allow_local)
    report(f"fetching {ref or 'the default branch'} of {address.url}")
    secrets = [given[name] for name in (PASSWORD, SSH_KEY) if given.get(name)]
    pinned = resolved(address, allow_local=allow_local)
    upload = to.with_name(f"{to.name}.git")
    with _folder(account, config_of(address, pinned, given, environment or {}), given.get(SSH_KEY)) as folder:
        variables_of_git = _environment(folder, address, pinned, environment or {}, allow_local=allow_local)
        run = _Git(
            git, folder / "repository", variables_of_git, account, address, secrets=secrets, abort=abort or Abort()
        )
        try:
            commit = run.fetch(ref)
            with upload.open("wb") as file:
                run.archive(f"{commit}:{subfolder.strip('/')}" if subfolder else commit, subfolder, file)
            snapshot = accept(upload, to, has_own_root=True)
        finally:
            run.end()
            upload.unlink(missing_ok=True)
    report(f"fetched the commit {commit}: {snapshot.files} files, {snapshot.size // 1024:,} KB")
    _warn(snapshot, report)
    return Fetched(snapshot, commit)


def config_of(address: Address, pinned: list[str], variables: Mapping[str, str], environment: Mapping[str, str]) -> str:
    """Returns git's configuration, with the addresses of the host and the credentials."""
    lines = [CONFIG, f'[http "{address.base}"]']
    if address.scheme in {"http", "https"} and pinned:
        lines.append(f"\tcurloptResolve = {_quoted(f'{address.host}:{address.port}:' + ','.join(pinned))}")
    if variables.get(PASSWORD):
        pair = f"{variables.get(USERNAME) or 'git'}:{variables[PASSWORD]}"
        lines.append(f"\textraHeader = {_quoted(f'Authorization: Basic {b64encode(pair.encode()).decode()}')}")
    if authorities := environment.get("GIT_SSL_CAINFO") or environment.get("SSL_CERT_FILE"):
        lines.append(f"\tsslCAInfo = {_quoted(authorities)}")
    return "\n".join(lines) + "\n"


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "") + '"'


@contextlib.contextmanager
def _folder(account: Account | None, config: str, key: str | None) -> Iterator[Path]:
    """Yields a folder with the configuration, the key for SSH if there is one, and an empty repository folder of the
    user that git runs as.

    Removes it with the rights of that user afterwards.
    """
    folder = Path(tempfile.mkdtemp(prefix="windlass-git-"))
    try:
        (folder / "repository").mkdir(mode=0o700)
        files = {"config": config, **({"key": key.replace("\r\n", "\n").strip() + "\n"} if key else {})}
        for name, text in files.items():
            descriptor = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
        if account is not None:
            folder.chmod(0o711)
            for name in ("repository", *files):
                account.give(folder / name)
        yield folder
    finally:
        remove(folder)


def _environment(
    folder: Path, address: Address, pinned: list[str], environment: Mapping[str, str], *, allow_local: bool
) -> dict[str, str]:
    given = {name: value for name, value in environment.items() if PASSED.fullmatch(name)}
    key = folder / "key"
    identity = f" -o IdentityFile={key if key.exists() else 'none'}"
    host_name = f" -o HostName={pinned[0].strip('[]')} -o HostKeyAlias={address.host}" if pinned else ""
    return {
        "PATH": os.defpath,
        **given,
        "HOME": str(folder / "repository"),
        "LANG": "C.UTF-8",
        "GIT_CONFIG_GLOBAL": str(folder / "config"),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "",
        "GIT_LFS_SKIP_SMUDGE": "1",
        "GIT_ALLOW_PROTOCOL": "https:ssh:http:git:file" if allow_local else "https:ssh",
        "GIT_SSH_COMMAND": f"{NO_IDENTITY_OF_THE_SERVER}{identity}{host_name}",
        "GIT_SSH_VARIANT": "ssh",
    }


class _Git:
    """Runs git in a folder, as another user if need be, until SECONDS are over for all of its commands."""

    def __init__(
        self,
        git: str,
        folder: Path,
        environment: dict[str, str],
        account: Account | None,
        address: Address,
        *,
        secrets: list[str],
        abort: Abort,
    ) -> None:
        self._git = git
        self._folder = folder
        self._environment = environment
        self._account = account
        self._address = address
        self._secrets = secrets
        self._abort = abort
        self._process: subprocess.Popen[bytes] | None = None
        self._late = threading.Event()
        self._timer = threading.Timer(SECONDS, self._give_up)
        self._timer.daemon = True
        self._timer.start()

    def fetch(self, ref: str | None) -> str:
        """Fetches one commit without its history, and returns its id."""
        self._output("init", "--quiet", "--bare", "--template=")
        fetch = ("fetch", "--quiet", "--no-tags", "--no-recurse-submodules", "--depth=1")
        self._output(*fetch, self._address.url, ref or "HEAD")
        return self._output("rev-parse", "--verify", "--quiet", "FETCH_HEAD^{commit}").decode().strip()

    def archive(self, tree: str, subfolder: str | None, to: IO[bytes]) -> None:
        try:
            self._run(("archive", "--format=zip", tree), to, LARGEST)
        except ProjectError as error:
            if subfolder and re.search("not a (valid object name|tree object)", error.message, re.IGNORECASE):
                raise self._fault(f"it has no folder {subfolder!a}", "Check the subfolder.") from None
            raise

    def end(self) -> None:
        self._timer.cancel()

    def _output(self, *arguments: str) -> bytes:
        with tempfile.TemporaryFile() as file:
            self._run(arguments, file, MOST_ERRORS)
            file.seek(0)
            return file.read()

    def _run(self, arguments: tuple[str, ...], to: IO[bytes], largest: int) -> None:
        account = self._account
        with tempfile.TemporaryFile() as errors:
            self._process = subprocess.Popen(  # noqa: S603 - git, with checked arguments
                ["/bin/sh", "-c", LIMITED, "sh", self._git, *arguments],
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
                user=account.uid if account else None,
                group=account.gid if account else None,
                extra_groups=[] if account else None,
            )
            try:
                with self._abort.watching(self._process):
                    self._copy(self._process, to, largest)
                code = self._process.wait()
            finally:
                self._kill()
                self._process.wait()
            if code or self._late.is_set():
                raise self._failed(errors)

    def _copy(self, process: subprocess.Popen[bytes], to: IO[bytes], largest: int) -> None:
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        with process.stdout as output:
            if self._late.is_set():  # just before it was started
                self._kill()
            while chunk := output.read(CHUNK):
                largest -= to.write(chunk)
                if largest < 0:
                    raise self._fault(f"it has more than {LARGEST // MB} MB", "Give a subfolder of it.")

    def _give_up(self) -> None:
        self._late.set()
        self._kill()

    def _kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _failed(self, errors: IO[bytes]) -> ProjectError:
        if self._late.is_set():
            return self._fault(f"it took more than {SECONDS:.0f} s", "Deploy the folder itself, or try again.")
        errors.seek(max(0, errors.seek(0, os.SEEK_END) - MOST_ERRORS))
        text = errors.read().decode("utf-8", "replace")
        for pattern, reason, hint in FAILURES:
            if re.search(pattern, text):
                return self._fault(reason, hint)
        return self._fault(f"git reports: {self._last_line(text)}", "Check the address.")

    def _last_line(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "***")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        line = next(
            (line for line in reversed(lines) if line.startswith(("fatal:", "error:"))), (lines or ["nothing"])[-1]
        )
        return "".join(one if one.isprintable() else "?" for one in line)[:300]

    def _fault(self, reason: str, hint: str) -> ProjectError:
        return ProjectError(f"{self._address.url} can't be fetched: {reason}.", hint)


def _warn(snapshot: Snapshot, report: Callable[[str], None]) -> None:
    if content_of(snapshot.file, ".gitmodules"):
        report("warning: submodules are not fetched, their folders are missing")
    if b"filter=lfs" in (content_of(snapshot.file, ".gitattributes") or b""):
        report("warning: files of Git LFS are not fetched, their places have the pointers of Git LFS")
