"""What poetry writes, read as poetry reads it."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from windlass.errors import ProjectError
from windlass.projects.poetry import Lock, own_dependencies, requirements, satisfies

pytestmark = pytest.mark.unit


LINUX = {
    "python_full_version": "3.12.4", "python_version": "3.12", "sys_platform": "linux", "platform_system": "Linux",
    "os_name": "posix", "platform_machine": "x86_64", "implementation_name": "cpython",
    "platform_python_implementation": "CPython",
}  # fmt: skip


@pytest.mark.parametrize(
    ("constraint", "inside", "outside"),
    [
        ("^1.2.3", ["1.2.3", "1.99"], ["1.2.2", "2.0"]),
        ("^0.2.3", ["0.2.3", "0.2.99"], ["0.3.0", "0.2.2"]),
        ("^0.0.3", ["0.0.3"], ["0.0.4"]),
        ("^0", ["0.9"], ["1.0"]),
        ("^3", ["3.0", "3.13.2"], ["4.0"]),
        ("~1.2.3", ["1.2.3", "1.2.9"], ["1.3"]),
        ("~1", ["1.9"], ["2.0"]),
        ("~=1.4.2", ["1.4.9"], ["1.5"]),
        ("1.2.*", ["1.2.7"], ["1.3"]),
        ("1.2", ["1.2", "1.2.0"], ["1.2.1"]),
        ("=1.2", ["1.2"], ["1.3"]),
        ("*", ["0.1", "99"], []),
        (">=3.10,<=3.13", ["3.10", "3.13"], ["3.9", "3.14"]),
        (">=3.10 <3.13", ["3.12.9"], ["3.13"]),
        (">= 3.10, < 3.14", ["3.13"], ["3.14"]),
        ("^1.0 || ^3.0", ["1.5", "3.1"], ["2.0"]),
        ("!=1.5,>=1", ["1.4"], ["1.5"]),
        ("nonsense of someone", ["1.0"], []),
    ],
)
def test_constraints(constraint: str, inside: list[str], outside: list[str]) -> None:
    assert [version for version in inside if not satisfies(version, constraint)] == []
    assert [version for version in outside if satisfies(version, constraint)] == []


def pins(own: str, lock: str, **environment: str) -> list[str]:
    here = {**LINUX, **environment}
    document = tomllib.loads(f"[tool.poetry.dependencies]\n{own}")
    return Lock.of(Path("/p/poetry.lock"), tomllib.loads(lock)).pins(own_dependencies(document, here), here)


def package(name: str, version: str = "1.0", more: str = "") -> str:
    return f'[[package]]\nname = "{name}"\nversion = "{version}"\n{more}\n'


def test_the_packages_are_followed_from_the_project_and_others_are_left_out() -> None:
    lock = package(
        "a", more='[package.dependencies]\nb = ">=1"\nc = {version = "*", markers = "sys_platform == \'win32\'"}'
    )
    lock += package("b", more="[package.dependencies]\nA = '*'") + package("c") + package("pytest")
    assert pins('python = "^3.10"\na = "^1"', lock) == ["a==1.0", "b==1.0"]
    assert pins('a = "^1"', lock, sys_platform="win32") == ["a==1.0", "b==1.0", "c==1.0"]


def test_hashes_come_from_each_form_of_the_lock() -> None:
    new = package("a", more='files = [{file = "a.whl", hash = "sha256:22"}, {file = "a.tar.gz", hash = "sha256:11"}]')
    old = package("a") + '[metadata.files]\na = [{file = "a.whl", hash = "sha256:33"}]\n'
    assert pins('a = "*"', new) == ["a==1.0 --hash=sha256:11 --hash=sha256:22"]
    assert pins('a = "*"', old) == ["a==1.0 --hash=sha256:33"]


def test_of_two_versions_the_one_for_this_python_is_taken() -> None:
    lock = package("a", "1.0", 'python-versions = "<3.12"') + package("a", "2.0", 'python-versions = ">=3.12"')
    assert pins('a = "*"', lock) == ["a==2.0"]
    assert pins('a = "*"', lock, python_full_version="3.11.2", python_version="3.11") == ["a==1.0"]
    marked = package("a", "1.0", "markers = 'python_version < \"3.12\"'") + package(
        "a", "2.0", "markers = {main = 'python_version >= \"3.12\"'}"
    )
    assert pins('a = "*"', marked) == ["a==2.0"]
    several = 'a = [{version = "1.0", python = "<3.12"}, {version = "2.0", python = ">=3.12"}]'
    assert pins(several, package("a", "1.0") + package("a", "2.0")) == ["a==2.0"]


def test_extras_bring_their_packages_and_optional_ones_stay_out() -> None:
    lock = package(
        "a",
        more='[package.dependencies]\nb = {version = "*", optional = true, markers = "extra == \'tools\'"}\n'
        '[package.extras]\ntools = ["b (>=1)"]',
    ) + package("b")
    assert pins('a = "*"', lock) == ["a==1.0"]
    assert pins('a = {version = "*", extras = ["tools"]}', lock) == ["a==1.0", "b==1.0"]
    assert pins('a = "*"\nb = {version = "*", optional = true}', lock) == ["a==1.0"]


def test_packages_of_git_of_a_folder_and_of_an_address() -> None:
    lock = package(
        "a", more='[package.source]\ntype = "git"\nurl = "ssh://h/a"\nreference = "main"\nresolved_reference = "ab12"'
    )
    lock += package("b", more='[package.source]\ntype = "directory"\nurl = "../b"')
    lock += package("c", more='files = [{hash = "sha256:1"}]\n[package.source]\ntype = "url"\nurl = "ftp://h/c.whl"')
    own = 'a = {git = "ssh://h/a"}\nb = {path = "../b"}\nc = {url = "ftp://h/c.whl"}'
    assert pins(own, lock) == ["a @ git+ssh://h/a@ab12", "b @ file:///b", "c @ ftp://h/c.whl --hash=sha256:1"]


def test_a_lock_that_does_not_fit_the_project_is_refused_with_what_to_do() -> None:
    with pytest.raises(ProjectError, match=r"poetry\.lock does not have b, on which") as caught:
        pins('b = "*"', package("a"))
    assert "poetry lock" in caught.value.hint
    with pytest.raises(ProjectError, match=r"poetry.lock has a 1\.0, which is not for Python 3\.12\.4 or"):
        pins('a = "^2"', package("a"))


def test_a_project_without_a_lock_gives_requirements() -> None:
    text = """
    [tool.poetry.dependencies]
    python = ">=3.10,<3.13"
    a = "^0.80.0"
    b = {version = "~1.2", extras = ["x", "w"]}
    c = {version = "*", python = "<3.11"}
    d = {git = "ssh://h/d", tag = "v1"}
    e = "*"
    """
    document = tomllib.loads("\n".join(line.strip() for line in text.splitlines()))
    assert requirements(document, LINUX) == [
        "a<0.81,>=0.80.0", "b[w,x]<1.3,>=1.2", "d @ git+ssh://h/d@v1", "e",
    ]  # fmt: skip


def test_a_version_that_can_not_be_read_is_named() -> None:
    with pytest.raises(ProjectError, match=r"the version 'latest!' of a in pyproject\.toml"):
        requirements({"tool": {"poetry": {"dependencies": {"a": "latest!"}}}}, LINUX)
