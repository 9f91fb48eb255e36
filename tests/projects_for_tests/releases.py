"""Files of the newest tagged release, from git."""

from __future__ import annotations

import io
import subprocess
import tarfile
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def _git(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["git", "-C", str(ROOT), *arguments], check=False, capture_output=True)


@cache
def _newest_release() -> str | None:
    found = _git("describe", "--tags", "--abbrev=0", "--match", "v[0-9]*")
    return found.stdout.decode().strip() if found.returncode == 0 else None


def newest_release() -> str:
    """The tag of the newest release that the checked-out commit follows. Skips the test without one."""
    found = _newest_release()
    if found is None:
        pytest.skip("No release is tagged here: `git describe --tags --match 'v[0-9]*'` finds none.")
    return found


def _archive(release: str, path: str) -> tarfile.TarFile:
    done = _git("archive", "--format=tar", release, path)
    assert done.returncode == 0, done.stderr.decode()
    return tarfile.open(fileobj=io.BytesIO(done.stdout))


def at_release(release: str, folder: str, ending: str) -> dict[str, str]:
    """By name, the texts of the files in this folder."""
    with _archive(release, folder) as files:
        members = [member for member in files.getmembers() if member.name.endswith(ending)]
        return {Path(member.name).name: files.extractfile(member).read().decode() for member in members}  # type: ignore[union-attr]


def extract(release: str, place: Path) -> Path:
    """Writes the sources of the release into `place`. Returns the folder to import them from."""
    with _archive(release, "src") as files:
        files.extractall(place, filter="data")
    return place / "src"
