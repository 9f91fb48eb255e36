"""Shows and changes the settings of a deployment."""

from __future__ import annotations

import json
import shlex
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import click

from windlass.cli.completion import complete_crew
from windlass.cli.printing import json_option, notify, print_json, print_table
from windlass.cli.servers import server_options
from windlass_child.protocol.sizes import size_in_words

if TYPE_CHECKING:
    from windlass.cli.control_session import ControlSession

HEADINGS = ("SETTING", "VALUE", "FROM")


@click.command
@click.argument("slug", metavar="DEPLOYMENT", shell_complete=complete_crew)
@click.argument("pairs", nargs=-1, metavar="[NAME=VALUE]...")
@click.option("--reset", "resets", multiple=True, metavar="NAME", help="Remove the deployment's own value.")
@json_option
@server_options
def settings(
    slug: str, pairs: tuple[str, ...], *, control: ControlSession, resets: tuple[str, ...], json_output: bool
) -> None:
    """Show the settings of a deployment, or change some.

    They override those of the project ([tool.windlass] in its pyproject.toml). VALUE is JSON, or text. A dot leads into
    a table:

    \b
        windlass deployments settings my-crew
        windlass deployments settings my-crew concurrency=2 limits.timeout=600
        windlass deployments settings my-crew --reset concurrency
    """  # noqa: D301 - \b keeps click from wrapping the lines
    body = changed_settings(pairs, resets)
    answer = changed(control, slug, body) if body else control.get("deployments", slug, "settings")
    if json_output:
        print_json(answer)
        return
    for one in answer.get("warnings", ()):
        notify(f"warning: {one['setting']}: {one['message']}")
    if body:
        notify(f"Changed for {slug}: {', '.join(flat(body))}")
        return
    from windlass.projects.options import SETTINGS

    own, project = flat(answer["own"]), flat(answer["project"])
    sizes = {one.name for one in SETTINGS if one.kind.form == "size"}

    def source(name: str) -> str:
        return "deployment" if own.get(name) is not None else "project" if name in project else "default"

    rows = [
        [name, size_in_words(value) if name in sizes and value else _shown(value), source(name)]
        for name, value in flat(answer["settings"]).items()
    ]
    print_table(HEADINGS, rows)
    notify(f"Change one with: windlass deployments settings {shlex.quote(slug)} NAME=VALUE")


def changed(control: ControlSession, slug: str, body: dict[str, Any]) -> dict[str, Any]:
    """Changes the settings. The error for an unknown name has the most similar one as its hint."""
    from windlass.cli.crew_session import RequestRefused

    try:
        answer: dict[str, Any] = control.send("PATCH", "deployments", slug, "settings", body=body)
    except RequestRefused as error:
        wrong = [name for name in flat(body) if name in error.cause.details.get("invalid", {})]
        known = list(flat(control.get("deployments", slug, "settings")["settings"])) if wrong else []
        similar = [found[0] for name in wrong if name not in known and (found := get_close_matches(name, known, 1))]
        if similar:
            error.hint = f"Did you mean {', '.join(similar)}?"
        raise
    return answer


def changed_settings(pairs: tuple[str, ...], resets: tuple[str, ...]) -> dict[str, Any]:
    """Returns the members to change, as nested objects. None resets a member. Raises click.UsageError."""
    found: dict[str, Any] = {}
    for pair in pairs:
        name, sign, text = pair.partition("=")
        if not (sign and name):
            raise click.UsageError(f"{pair!r}: give NAME=VALUE, such as concurrency=2.")
        _put(found, name, _value(text))
    for name in resets:
        _put(found, name, None)
    return found


def _put(settings: dict[str, Any], name: str, value: Any) -> None:
    *tables, last = name.split(".")
    for table in tables:
        settings = settings.setdefault(table, {})
    settings[last] = value


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def flat(settings: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Returns the members of nested objects by their names with dots."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        found |= flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return found


def _shown(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, str) else "-" if value is None else json.dumps(value, ensure_ascii=False)
