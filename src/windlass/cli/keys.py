"""Shows and rotates the master keys of the server of this machine."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from windlass.cli.exit_codes import FAILED
from windlass.cli.printing import Screen, json_option, notify, print_json, print_table
from windlass.cli.servers import demand_local

if TYPE_CHECKING:
    from windlass.administration.master_keys import KeyState, Rotated
    from windlass.config import Settings

HEADINGS = ("KEY", "USE", "VALUES", "WHERE")


@click.group
def keys() -> None:
    """Show and rotate the master keys, which encrypt what is stored.

    The commands work on the server's own machine, with the settings of the server. A server may run meanwhile.
    """


@keys.command
@json_option
def status(*, json_output: bool) -> None:
    """Show the master keys, and how many stored values each encrypts."""
    from windlass.administration.master_keys import status

    found = asyncio.run(status(_settings()))
    if json_output:
        print_json([asdict(one) | {"total": one.total} for one in found])
    else:
        print_table(HEADINGS, [_cells(one) for one in found])
    for one in found:
        if not one.known:
            notify(f"warning: this machine does not have the key {one.id}. Values that it encrypted can't be read.")


def _cells(one: KeyState) -> list[str]:
    use = "encrypts" if one.current else "decrypts" if one.known else "missing"
    return [one.id, use, str(one.total), ", ".join(f"{place} {count}" for place, count in one.values.items()) or "-"]


@keys.command
@json_option
def prepare(*, json_output: bool) -> None:
    """Add a new key that decrypts, and does not encrypt yet.

    Several servers on one database must all have the new key before one of them encrypts with it. A single server
    needs `windlass admin keys rotate` only.
    """
    from windlass.administration.master_keys import file_of, prepare

    settings = _settings()
    key_id = asyncio.run(prepare(settings))
    if json_output:
        print_json({"key": key_id})
    notify(
        f"The key {key_id} is now the last one in {file_of(settings)}. Next:\n"
        "  1. Copy the file to the home of every other server. Running servers read it without a restart; a server\n"
        "     with WINDLASS_MASTER_KEY needs the key as the last one there, and a restart.\n"
        f"  2. windlass admin keys rotate --to {key_id}"
    )


@keys.command
@click.option("--to", metavar="KEY", help="Encrypt with this key, as `windlass admin keys status` names it.")
@json_option
def rotate(*, to: str | None, json_output: bool) -> None:
    """Encrypt all stored values with a new master key.

    Makes a key as the first line of the key file, and encrypts every stored value with it in small batches. Servers
    may run meanwhile and use the new key without a restart. An interrupted rotation goes on when the command is
    given again. With WINDLASS_MASTER_KEY, the first of its keys is the new one.
    """
    from windlass.administration.master_keys import rotate

    settings, screen = _settings(), Screen()

    def progress(place: str, done: int, total: int) -> None:
        screen.live(f"{place}: {done} of {total}", done, total)

    try:
        found = asyncio.run(rotate(settings, to, progress))
    finally:
        screen.clear()
    if json_output:
        print_json(asdict(found))
    _explain(found, outside=bool(settings.database_url))
    if not found.complete:
        raise click.exceptions.Exit(FAILED)


def _explain(found: Rotated, *, outside: bool) -> None:
    changed = ", ".join(f"{place} {count}" for place, count in found.changed.items() if count)
    notify(f"Encrypted with the key {found.current}: {changed or 'nothing, all values were so already'}")
    for why in found.unreadable.values():
        notify(f"warning: {why}")
    if not found.complete and not found.unreadable:
        notify(
            "warning: a server still encrypts with another key. Make the new key the first one of every server, then "
            "run this command again."
        )
    if outside:
        notify(f"Make {found.current} the first key of every other server too, before you remove another key.")
    if found.unneeded and found.complete:
        notify(
            f"No stored value needs {', '.join(found.unneeded)} any more; the backups made until now do. Keep a copy "
            f"with them, then remove it from every server: windlass admin keys drop {' '.join(found.unneeded)}"
        )


@keys.command
@click.argument("key_ids", nargs=-1, required=True, metavar="KEY...")
@json_option
def drop(*, key_ids: tuple[str, ...], json_output: bool) -> None:
    """Remove keys that encrypt no stored value from the key file.

    KEY is the id that `windlass admin keys status` shows. Backups that were made with the key still need it.
    """
    from windlass.administration.master_keys import drop

    asyncio.run(drop(_settings(), key_ids))
    if json_output:
        print_json({"removed": key_ids})
    notify(f"Removed: {', '.join(key_ids)}")


def _settings() -> Settings:
    from windlass import log
    from windlass.config import load

    demand_local()
    settings = load()
    log.configure(settings.log_format, "WARNING")
    return settings
