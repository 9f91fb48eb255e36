"""Writes the tables of the documentation that follow from the code: `make docs`.

A table stands between two comments of its page. tests/repo/test_generated_docs.py compares the pages.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windlass.config import Settings
from windlass.kickoffs.declared_settings import plain
from windlass.projects.options import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from windlass.kickoffs.declared_settings import Setting

DOCS = Path(__file__).parents[2] / "docs"


def settings_of_a_crew() -> Iterator[str]:
    group = None
    for one in SETTINGS:
        if one.group != group:
            group = one.group
            yield f"\n## {group.title}\n\n{group.text}\n"
            yield "| setting | value | default | meaning | set by |"
            yield "|---|---|---|---|---|"
        yield f"| `{one.name}` | {_values(one)} | {_default(one)} | {one.meaning} | {one.by} |"


def _values(setting: Setting) -> str:
    if setting.kind.words:
        several = "a list of " if setting.kind.form == "several" else ""
        return several + ", ".join(f"`{word}` ({words})" for word, words in setting.kind.words.items())
    return setting.kind.wanted.replace("*", "\\*")


def _default(setting: Setting) -> str:
    names = {setting.name.replace(".", "_"), setting.name.rpartition(".")[2]} & Settings.model_fields.keys()
    if setting.default is None and names:
        return f"`WINDLASS_{names.pop().upper()}`"
    value = plain(setting.default)
    return "none" if value in (None, []) else f"`{_written(value)}`"


def _written(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return value if isinstance(value, str) else json.dumps(value)


TABLES: dict[str, tuple[str, Callable[[], Iterator[str]]]] = {
    "settings of a crew": ("reference/crew-settings.md", settings_of_a_crew),
}
"""The name of the table, its page, and its lines."""


def with_table(page: str, name: str) -> str:
    """Returns the page with the table in the place of the one that it has."""
    begin, end = f"<!-- generated: {name} -->", "<!-- end -->"
    text = "\n".join(TABLES[name][1]()).strip("\n")
    found, count = re.subn(f"{begin}.*?{end}", lambda _: f"{begin}\n\n{text}\n\n{end}", page, flags=re.DOTALL)
    if count != 1:
        raise LookupError(f"{TABLES[name][0]} needs {begin} and {end}, once")
    return found


def main() -> None:
    for name, (page, _) in TABLES.items():
        path = DOCS / page
        path.write_text(with_table(path.read_text("utf-8"), name), "utf-8")


if __name__ == "__main__":
    main()
