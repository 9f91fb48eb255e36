"""What the commands that print lists share."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from windlass.cli.printing import notify, print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from click.shell_completion import CompletionItem

Command = TypeVar("Command", bound="Callable[..., Any]")


class ListByDefault(click.Group):
    """A group whose command `default` runs when no command is given."""

    default = "list"

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, [self.default, *args] if self._are_of_default(ctx, args) else args)

    def _are_of_default(self, ctx: click.Context, args: list[str]) -> bool:
        if not args:
            return not ctx.resilient_parsing  # a shell completes the names of the commands
        takes_arguments = any(isinstance(one, click.Argument) for one in self.commands[self.default].params)
        is_named = args[0] in {*self.commands, *self.get_help_option_names(ctx)}
        return not is_named and args[0] != "--" and (takes_arguments or args[0].startswith("-"))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        return self.commands[self.default].shell_complete(ctx, incomplete) or super().shell_complete(ctx, incomplete)


class ShowByDefault(ListByDefault):
    default = "show"


limit_option = click.option(
    "--limit", type=click.IntRange(1, 100_000), default=50, show_default=True, metavar="NUMBER", help="The most rows."
)


def moment(_: click.Context, __: click.Parameter, value: str | None) -> datetime | None:
    if value is None:
        return None
    try:
        at = datetime.fromisoformat(value)
    except ValueError:
        raise click.BadParameter(f"{value!r}: give a time such as 2026-01-15T09:30:00Z.") from None
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def period_options(command: Command) -> Command:
    """Adds the options since and until to the command."""
    until = click.option("--until", metavar="TIME", callback=moment, help="Only those until this time.")
    since = click.option("--since", metavar="TIME", callback=moment, help="Only those from this time on.")
    return since(until(command))


def in_query(at: datetime | None) -> str | None:
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z") if at else None


def second(at: str | None) -> str:
    """Returns a time of an answer for a table."""
    return f"{datetime.fromisoformat(at).astimezone(UTC):%Y-%m-%d %H:%M:%S}" if at else "-"


def print_page(
    page: tuple[list[dict[str, Any]], str | None],
    headings: Sequence[str],
    cells: Callable[[dict[str, Any]], list[str]],
    *,
    member: str | None = None,
    empty: str,
    json_output: bool,
) -> None:
    """Prints the rows of a list as a table, or as JSON: in the member `member` with the cursor, or alone without one.

    `empty` is the text for no rows.
    """
    rows, cursor = page
    if json_output:
        print_json({member: rows, "next_cursor": cursor} if member else rows)
    elif rows:
        print_table(headings, [cells(row) for row in rows])
    else:
        notify(empty)
    if cursor and not (json_output and member):
        notify(f"There may be more. List more with: --limit {len(rows) * 2}")
