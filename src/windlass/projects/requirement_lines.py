"""Reads lines of requirements files, and writes them again for uv.

uv gets no line of a project's file as it is: each is parsed here, included files are read here, and paths become
absolute. So nothing but the text that is written decides on what uv reads.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement

from windlass.errors import ProjectError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LARGEST_TEXT = 4 << 20
MOST_LINES = 10_000
MOST_FILES = 100
LONGEST = 20_000
"""Characters of one requirement. Its hashes may have five times as many."""
REMOTE = re.compile(r"(git\+)?(https?|ssh)://", re.IGNORECASE)
CREDENTIALS = re.compile(r"(?<=://)[^/\\?#@\s]{0,2000}@")
"""The user and the password of a URL, in the only form in which all programs find the same host after it."""
OF_CREDENTIALS = ("_USERNAME", "_PASSWORD")
ARCHIVES = tuple(
    ".whl .zip .egg .tar .tgz .tbz .tbz2 .txz .tlz .gz .bz2 .xz .lz .lzma .zst".split()  # noqa: SIM905 - shorter
)
"""Ends of names that uv takes for files."""
HASH = re.compile(r"[A-Za-z0-9_]{1,20}:[0-9a-fA-F]{1,256}")
SHORT = {
    "-r": "--requirement", "-c": "--constraint", "-e": "--editable", "-i": "--index-url", "-f": "--find-links",
}  # fmt: skip
SAME = {
    "--requirements": "--requirement",
    "--constraints": "--constraint",
    "--pypi-url": "--index-url",
}
PLACES = {"--index-url", "--extra-index-url", "--find-links"}
OF_BUILDS = {"--no-binary", "--only-binary"}
ARGUMENTS = {"--pre": ("--prerelease", "allow"), "--require-hashes": ("--require-hashes",)}
"""Lines that are arguments of uv."""
IGNORED = {"--prefer-binary", "--trusted-host", "--use-feature", "--use-pep517", "--no-use-pep517"}
"""Lines without a meaning for uv, which ignores them too."""


@dataclass
class RequirementLines:
    """The lines of a project in `root`, as uv gets them.

    `own` are the files and folders of which packages are made, as the project names them, and `indexes` the folders in
    which uv looks for packages. With either the packages are not determined by the lines alone.
    """

    root: Path
    requirements: list[str] = field(default_factory=list)
    constraints: list[str] = field(default_factory=list)
    options: list[str] = field(default_factory=list)
    arguments: list[str] = field(default_factory=list)
    own: list[str] = field(default_factory=list)
    indexes: list[str] = field(default_factory=list)
    _read: set[tuple[Path, bool]] = field(default_factory=set)
    _count: int = 0

    def include(self, file: Path, *, constraints: bool = False) -> None:
        """Reads a file, and those that it includes. Raises ProjectError with the line that can't be used."""
        if (file, constraints) in self._read:
            return
        self._read.add((file, constraints))
        if len(self._read) > MOST_FILES:
            raise ProjectError(f"more than {MOST_FILES} files of requirements include each other.", "Use fewer files.")
        for number, line in logical_lines(text_of(file)):
            self._count += 1
            if self._count > MOST_LINES:
                raise ProjectError(f"{file.name} has more than {MOST_LINES} lines.", "Remove some of them.")
            self.add(line, f"{file.name}, line {number}", file.parent, constraints=constraints)

    def add(self, line: str, where: str, folder: Path | None = None, *, constraints: bool = False) -> None:
        """Adds one line, which has no comment and no break. Raises ProjectError."""
        if len(line.splitlines()) != 1 or "\\" in line:
            raise unusable(where, "it has a line break or a backslash")
        if line.startswith("-"):
            self._add_option(line, where, folder or self.root, constraints=constraints)
        else:
            (self.constraints if constraints else self.requirements).append(self._requirement(line, where))

    def _add_option(self, line: str, where: str, folder: Path, *, constraints: bool) -> None:
        name, value = option_of(line, where)
        if name in {"--requirement", "--constraint"}:
            self.include(self._included(value, where, folder), constraints=constraints or name == "--constraint")
        elif name == "--editable":
            if REMOTE.match(value):
                self.requirements.append(self._requirement(value, where))
            else:
                self.requirements.append(f"-e {self._local(value)}")
        elif name in PLACES:
            self.options.append(f"{name} {self.index(value)}")
        elif name in OF_BUILDS:
            self.options.append(f"{name} {one_word(value, where)}")
        elif name == "--no-index":
            self.options.append(name)
        elif name in ARGUMENTS:
            self.arguments += ARGUMENTS[name]
        elif name not in IGNORED:
            raise unusable(where, f"{name} is no option that is supported there")

    def _included(self, value: str, where: str, folder: Path) -> Path:
        file = (folder / value).resolve()
        if not file.is_relative_to(self.root.resolve()):
            raise unusable(where, f"{value} is not in the folder of the project")
        if not file.is_file():
            raise unusable(where, f"there is no file {value}")
        return file

    def index(self, place: str) -> str:
        """Returns the address of a package index, or of a folder with packages, with which uv finds it."""
        if REMOTE.match(place):
            return place
        self.indexes.append(place)
        return self._address(place)

    def _local(self, place: str) -> str:
        """Returns the address of a file or folder that is a package. It may end with extras."""
        path, extras = (place, "")
        if place.endswith("]") and "[" in place:
            path, _, extras = place.rpartition("[")
            extras = f"[{extras}"
        self.own.append(path)
        return self._address(path) + extras

    def _address(self, place: str) -> str:
        return place if "://" in place or place.lower().startswith("file:") else (self.root / place).absolute().as_uri()

    def requirement(self, text: object, where: str) -> str:
        """Returns a requirement of PEP 508 in its canonical form, with an absolute address. Raises ProjectError."""
        if not isinstance(text, str) or len(text) > LONGEST or len(text.splitlines()) != 1:
            raise unusable(where, f"{str(text)[:200]!r} is not a text of one line with at most {LONGEST} characters")
        try:
            found = Requirement(text)
        except InvalidRequirement as error:
            reason = str(error).partition("\n")[0][:200]
            raise unusable(where, f"{text[:200]!r} is no requirement ({reason})") from None
        if found.url and not REMOTE.match(found.url):
            found.url = self._local(found.url)
        elif not found.url and is_archive(found.name):
            raise unusable(where, f"{text[:200]!r} is no requirement")
        return str(found)

    def _requirement(self, line: str, where: str) -> str:
        if len(line) > LONGEST * 5:
            raise unusable(where, "it is too long")
        text, _, tail = " ".join(line.split()).partition(" --")
        hashes = hashes_of(f"--{tail}", where) if tail else []
        return " ".join([self._plain(text, where), *(f"--hash={one}" for one in hashes)])

    def _plain(self, text: str, where: str) -> str:
        first, _, marker = (part.strip() for part in text.partition(" ;"))
        if REMOTE.match(first) and " " not in first:
            return f"{first} ; {marker}" if marker else first
        is_place = "@" not in first and (first.startswith(".") or "/" in first or is_archive(first.partition("[")[0]))
        if is_place or first.lower().startswith("file:"):
            place = self._local(first)
            return f"{place} ; {marker}" if marker else place
        return self.requirement(text, where)


def logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yields the lines that are not empty, with their numbers, without comments, joined where one ends with a
    backslash.
    """
    begun, first = "", 0
    for number, raw in enumerate([*text.splitlines(), ""], 1):
        first = first if begun else number
        line = without_comment(raw)
        if line.endswith("\\"):
            begun += f"{line[:-1]} "
            continue
        whole, begun = (begun + line).strip(), ""
        if whole:
            yield first, whole


def without_comment(line: str) -> str:
    place = line.find("#")
    while place > 0 and not line[place - 1].isspace():
        place = line.find("#", place + 1)
    return (line if place < 0 else line[:place]).rstrip()


def option_of(line: str, where: str) -> tuple[str, str]:
    """Returns the long name of an option, and its value."""
    if line.startswith("--"):
        word = line.split(None, 1)[0].partition("=")[0]
        name, value = SAME.get(word, word), line[len(word) :]
    else:
        name, value = SHORT.get(line[:2], line.split(None, 1)[0]), line[2:]
    value = value.strip().removeprefix("=").strip()
    if name in {"--requirement", "--constraint", "--editable", *PLACES}:
        value = one_word(value, where)
    return name, value


def one_word(value: str, where: str) -> str:
    try:
        words = shlex.split(value)
    except ValueError:
        words = []
    if len(words) != 1 or words[0].startswith("-") or words[0].split() != words:
        raise unusable(where, "the option needs one value without spaces")
    return words[0]


def hashes_of(tail: str, where: str) -> list[str]:
    words = tail.replace("--hash ", "--hash=").split()
    found = [word.removeprefix("--hash=") for word in words]
    if not all(word.startswith("--hash=") for word in words) or not all(map(HASH.fullmatch, found)):
        raise unusable(where, "only hashes (--hash=sha256:...) can follow a requirement")
    return found


def is_archive(name: str) -> bool:
    return name.lower().endswith(ARCHIVES)


def text_of(file: Path) -> str:
    """Returns the text of a file. Raises ProjectError for a file that can't be read, or is too large."""
    try:
        if file.stat().st_size > LARGEST_TEXT:
            raise ProjectError(
                f"{file} is larger than {LARGEST_TEXT >> 20} MB.", "Check that it is the file that it should be."
            )
        return file.read_text("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError:
        raise ProjectError(f"{file} can't be read: it is not UTF-8.", "Save it as UTF-8.") from None
    except OSError as error:
        raise ProjectError(f"{file} can't be read: {error.strerror}.") from None


def unusable(where: str, reason: str) -> ProjectError:
    return ProjectError(f"{where}, can't be used: {reason}.", "Correct it, or remove it.")


def slow_digest(text: str) -> str:
    """Returns a digest from which a password in the text, for example in a URL, can't be guessed quickly."""
    return hashlib.scrypt(text.encode(), salt=b"windlass environment", n=1 << 14, r=8, p=1, dklen=16).hex()
