from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

import pytest

import windlass.store
from windlass.store.database import queries

pytestmark = pytest.mark.unit


STORE = Path(windlass.store.__file__).parent
FILES = sorted(path.stem for path in STORE.joinpath("queries").glob("*.sql"))


def users() -> dict[str, set[str]]:
    """Names of statements that the modules take, by the file that they take them from, also under another name."""
    texts = {module.stem: module.read_text() for module in STORE.glob("*.py")}
    files = {
        module: found[1]
        for module, text in texts.items()
        if (found := re.search(r'^SQL = queries\("(\w+)"\)$', text, re.MULTILINE))
    }
    used: dict[str, set[str]] = {file: set() for file in files.values()}
    for module, text in texts.items():
        constants = {"SQL": files[module]} if module in files else {}
        for other, name in re.findall(r"^from windlass\.store\.(\w+) import SQL as (\w+)$", text, re.MULTILINE):
            constants[name] = files[other]
        for constant, file in constants.items():
            used[file].update(re.findall(rf'\b{constant}\["(\w+)"\]', text))
    return used


@pytest.mark.parametrize("file", FILES)
def test_every_statement_is_used_and_every_used_one_exists(file: str) -> None:
    assert users()[file] == set(queries(file))


def test_no_module_takes_statements_from_a_file_that_is_none() -> None:
    assert sorted(users()) == FILES


@pytest.mark.parametrize("file", FILES)
def test_no_two_statements_have_one_name(file: str) -> None:
    text = resources.files("windlass.store").joinpath("queries", f"{file}.sql").read_text()
    assert text.count("-- name:") == len(queries(file))


@pytest.mark.parametrize("file", FILES)
def test_comments_on_lines_of_their_own_are_not_sent(file: str) -> None:
    for statement in queries(file).values():
        text = statement.as_string()
        assert text
        assert not [line for line in text.splitlines() if line.startswith("--")]


def test_a_file_that_is_none_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        queries("nothing")
