"""Servers of two releases use one database: a migration removes nothing that the former release uses."""

from __future__ import annotations

import re
from hashlib import sha256
from importlib import resources

import pytest

from projects_for_tests.releases import at_release, newest_release
from windlass.store.migrate import CONTRACTION, known_functions, known_migrations

FIRST_RELEASE = 3
"""The newest migration of those that were made before the first release. They may do anything."""
LANDED = {
    4: "950bbde9ba2a776b",
    5: "0da14aea884a25e8",
    6: "f1934cb795f42ce0",
    7: "5ebe6fde364c448c",
}
"""The digests of later migrations, by number. Servers that follow main have applied them, before any release."""
NARROWING = {
    r"DROP (?!NOT NULL\b)": "removes something",
    r"RENAME\b": "renames something",
    r"(?:SET DATA )?TYPE\b": "changes a type",
    r"SET NOT NULL\b": "refuses NULL",
    r"ADD CONSTRAINT\b|ADD (?:CHECK|UNIQUE|FOREIGN|PRIMARY)\b": "adds a constraint",
    r"ADD COLUMN (?:IF NOT EXISTS )?\w+(?![^,;]*\bDEFAULT\b)[^,;]*\bNOT NULL\b": "adds a column that needs a value",
}
"""Parts of ALTER TABLE."""
ELSEWHERE = {
    r"^\s*DROP\b": "removes something",
    r"^\s*TRUNCATE\b|^\s*DELETE\b": "removes rows",
    r"^\s*ALTER (?!TABLE\b)": "alters something that is no table",
}
INDEX = re.compile(r"^\s*CREATE (?:UNIQUE )?INDEX (?:IF NOT EXISTS )?\w+ ON (\w+)", re.IGNORECASE)
TABLE = re.compile(r"^\s*CREATE TABLE (?:IF NOT EXISTS )?(\w+)", re.IGNORECASE | re.MULTILINE)


def narrowings(sql: str) -> list[str]:
    """What servers of the former release may not survive, in words."""
    text = re.sub(r"--.*", "", sql)
    new = set(TABLE.findall(text))
    found = []
    for statement in text.split(";"):
        altered = re.match(r"\s*ALTER TABLE (?:IF EXISTS )?(?:ONLY )?(\w+)\s", statement, re.IGNORECASE)
        rules = ELSEWHERE if altered is None else {} if altered[1] in new else NARROWING
        found += [what for rule, what in rules.items() if re.search(rule, statement, re.IGNORECASE)]
        indexed = INDEX.match(statement)
        if indexed and indexed[1] not in new:
            found.append("builds an index of a table that exists")
    return found


@pytest.mark.unit
@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("ALTER TABLE kickoffs DROP COLUMN a", ["removes something"]),
        ("ALTER TABLE kickoffs ADD COLUMN b int, DROP a", ["removes something"]),
        ("DROP TABLE a", ["removes something"]),
        ("drop function f(int)", ["removes something"]),
        ("ALTER TABLE kickoffs RENAME a TO b", ["renames something"]),
        ("ALTER TABLE kickoffs ALTER COLUMN a TYPE bigint", ["changes a type"]),
        ("ALTER TABLE kickoffs ALTER a SET NOT NULL", ["refuses NULL"]),
        ("ALTER TABLE kickoffs ADD COLUMN a int NOT NULL", ["adds a column that needs a value"]),
        ("ALTER TABLE kickoffs ADD COLUMN a int NOT NULL, ADD b int DEFAULT 1", ["adds a column that needs a value"]),
        ("ALTER TABLE kickoffs ADD CONSTRAINT c CHECK (a > 0)", ["adds a constraint"]),
        ("ALTER TABLE kickoffs ADD CHECK (a > 0)", ["adds a constraint"]),
        ("ALTER TYPE state ADD VALUE 'x'", ["alters something that is no table"]),
        ("TRUNCATE events", ["removes rows"]),
        ("CREATE UNIQUE INDEX i ON kickoffs (a)", ["builds an index of a table that exists"]),
        ("CREATE TABLE a (b int NOT NULL CHECK (b > 0)); CREATE INDEX i ON a (b); ALTER TABLE a ADD CHECK (b < 9)", []),
        ("ALTER TABLE kickoffs ADD COLUMN a int NOT NULL DEFAULT 0, ADD COLUMN b text -- DROP it", []),
        ("ALTER TABLE kickoffs ALTER COLUMN a DROP NOT NULL", []),
        ("INSERT INTO settings (name, value) VALUES ('a', 'b'); UPDATE settings SET value = 'c'", []),
        ("-- only functions have changed", []),
    ],
)
def test_what_a_migration_may_not_do_is_found(sql: str, expected: list[str]) -> None:
    assert narrowings(sql) == expected


@pytest.mark.unit
def test_migrations_only_expand_unless_they_are_marked() -> None:
    after = {number: sql for number, sql in known_migrations().items() if number > FIRST_RELEASE}
    found = {number: narrowings(sql) for number, sql in after.items() if not CONTRACTION.search(sql)}
    assert {number: what for number, what in found.items() if what} == {}


@pytest.mark.unit
def test_a_contraction_names_an_earlier_migration() -> None:
    for number, sql in known_migrations().items():
        marks = CONTRACTION.findall(sql)
        assert len(marks) == len(re.findall(r"^-- *contracts", sql, re.MULTILINE)) <= 1
        assert all(int(mark) < number for mark in marks)


def files_of(release: str, folder: str) -> dict[str, str]:
    return at_release(release, f"src/windlass/store/{folder}", ".sql")


def test_what_is_removed_is_needless_since_the_newest_release() -> None:
    released = {int(name[:4]) for name in files_of(newest_release(), "migrations")}
    for number, sql in known_migrations().items():
        if number not in released and (mark := CONTRACTION.search(sql)):
            assert int(mark[1]) in released, f"migration {number} contracts what no release has expanded yet"


def test_released_migrations_do_not_change() -> None:
    folder = resources.files("windlass.store").joinpath("migrations")
    for name, sql in files_of(newest_release(), "migrations").items():
        assert folder.joinpath(name).read_text("utf-8") == sql, f"{name} is released: add another migration"


@pytest.mark.unit
def test_migrations_that_servers_of_main_have_applied_do_not_change() -> None:
    found = {number: sha256(sql.encode()).hexdigest()[:16] for number, sql in known_migrations().items()}
    later = {number: digest for number, digest in found.items() if number > FIRST_RELEASE}
    assert later == LANDED, "add another migration; write down the digest of a new one"


def test_changed_functions_have_a_new_migration() -> None:
    """A server of the release would put its own functions back otherwise."""
    release = newest_release()
    released = files_of(release, "functions")
    if "\n".join(sql for _, sql in sorted(released.items())) == known_functions():
        return
    newest = max(int(name[:4]) for name in files_of(release, "migrations"))
    assert max(known_migrations()) > newest, "add a migration, if need be with a comment only"
