"""Writes the tables of the documentation that follow from the code: `make docs`.

The settings of a crew stand between two comments of their page, and the options of a command below its heading in
docs/reference/cli.md. tests/repo/test_generated_docs.py compares the pages.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from windlass.cli.commands import windlass
from windlass.config import Settings
from windlass.kickoffs.declared_settings import plain
from windlass.projects.options import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

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


def with_settings(page: str) -> str:
    """Returns the page with the settings in the place of those that it has."""
    begin, end = "<!-- generated: settings of a crew -->", "<!-- end -->"
    text = "\n".join(settings_of_a_crew()).strip("\n")
    found, count = re.subn(f"{begin}.*?{end}", lambda _: f"{begin}\n\n{text}\n\n{end}", page, flags=re.DOTALL)
    if count != 1:
        raise LookupError(f"The page needs {begin} and {end}, once")
    return found


def with_options(page: str) -> str:
    """Returns the page with the table of options below the heading of each command.

    A table at the beginning of a section has options of all of its commands. They are not repeated.
    """
    commands = {usage(context): context for context in leaves(click.Context(windlass, info_name="windlass"))}
    sections = re.split(r"^(?=## )", page, flags=re.MULTILINE)
    return "".join(_with_options_of_section(section, commands) for section in sections)


def _with_options_of_section(section: str, commands: Mapping[str, click.Context]) -> str:
    common, *parts = re.split(r"^(?=### )", section, flags=re.MULTILINE)
    known = set(re.findall(r"^\| `(-.+?)` \|", common, re.MULTILINE))
    found = [common]
    for part in parts:
        context = commands.get(part.splitlines()[0].removeprefix("### ").strip("`"))
        rows = [row for row in option_rows(context) if row[0] not in known] if context else []
        table = "".join(["| option | |\n|---|---|\n", *(f"| `{name}` | {words} |\n" for name, words in rows)])
        found.append(OPTIONS.sub(lambda _, table=table: table, part, count=1) if rows else part)
    return "".join(found)


OPTIONS = re.compile(r"^\| option \| \|\n\|---\|---\|\n(?:\|.*\n)*", re.MULTILINE)


def option_rows(context: click.Context) -> list[tuple[str, str]]:
    """Returns each option as `--help` has it, and its help."""
    options = [one for one in context.command.get_params(context) if isinstance(one, click.Option)]
    records = [record for one in options if (record := one.get_help_record(context))]
    return [(_cell(name), _cell(_in_code(words) + MORE.get(name, ""))) for name, words in records if name not in HELP]


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("*", "\\*")


def _in_code(text: str) -> str:
    """Returns the text with variables and options in code, and with a link to the section on JSON."""
    text = re.sub(r"(Print .*?)\bJSON\b", r"\1[JSON](#json)", text, count=1)
    parts = text.split("`")  # every second one is in code already
    parts[::2] = [re.sub(r"\bWINDLASS_\w+|(?<![\w-])--[a-z][a-z-]*", r"`\g<0>`", one) for one in parts[::2]]
    return "`".join(parts)


MORE = {
    "--python PYTHON": " [interpreters.md](../concepts/interpreters.md)",
    "--script FILE": " [offline-model.md](../how-to/offline-model.md#a-script)",
    "--limit NAME=VALUE": " [limits.md](limits.md)",
    "--entrypoint FILE:NAME": " [Several crews](../how-to/deploy.md#several-crews-of-one-project)",
    "--scope [read|run|admin]": " [tokens.md](../how-to/tokens.md)",
    "--role [owner|developer|viewer]": " [tokens.md](../how-to/tokens.md)",
}
"""Links to what an option is about."""


def usage(context: click.Context) -> str:
    return f"{context.command_path} {' '.join(context.command.collect_usage_pieces(context))}"


def leaves(context: click.Context) -> Iterator[click.Context]:
    """Yields the commands that are no groups."""
    if not isinstance(context.command, click.Group):
        yield context
        return
    for name in context.command.list_commands(context):
        if command := context.command.get_command(context, name):
            yield from leaves(click.Context(command, info_name=name, parent=context))


HELP = {"--help", "-h, --help"}
PAGES: dict[str, Callable[[str], str]] = {
    "reference/crew-settings.md": with_settings,
    "reference/cli.md": with_options,
}
"""Maps a page to the function that renews its tables."""


def main() -> None:
    for page, renewed in PAGES.items():
        path = DOCS / page
        path.write_text(renewed(path.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
