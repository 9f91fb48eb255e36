"""Follows a build: prints its log lines as they come, and how it ended."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from windlass.cli.exit_codes import FAILED
from windlass.cli.printing import Screen, notify, print_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from windlass.cli.control_session import ControlSession

    Build = dict[str, Any]

WAIT = 20.0
"""Seconds for which the server may hold back the next page of a log."""
SOON = 3.0
"""Seconds after which a build that no worker has begun is reported."""
PAGE = 1000
PATIENCE = 60.0
"""Seconds for which the command waits for a server that is not available."""
OPEN = {"queued", "building"}
NOW = {"queued": "waiting for a worker", "building": "building; Ctrl-C leaves the build running"}


def follow_build(
    control: ControlSession, build: str, *, again: str, show: Callable[[str], None] | None = None
) -> Build:
    """Prints the log of a build until its end, with `show` or to standard error. Returns the build. `again` is the
    command that follows it again.

    Goes on when the server restarts meanwhile. After Ctrl-C the build goes on.
    """
    screen, errors = Screen(), []

    def print_lines(lines: Iterable[Mapping[str, Any]]) -> None:
        for line in lines:
            (show or screen.line)(build_line(line))

    try:
        for line in build_log(control, build, follow=True, screen=screen, again=again):
            if line["level"] == "error":
                errors.append(line)
            else:
                print_lines([line])
        ended = control.get("builds", build)
        print_lines(_without_end(errors, ended))
    except KeyboardInterrupt:
        screen.clear()
        notify(f"The build goes on. Follow it with: {again}")
        raise
    finally:
        screen.clear()
    return ended


def build_log(
    control: ControlSession, build: str, *, follow: bool, screen: Screen | None = None, again: str = ""
) -> Iterator[dict[str, Any]]:
    """Yields the lines of a build's log. With `follow`, goes on until the build has ended."""
    from windlass.cli.follow import Retrying

    retrying, after = Retrying(PATIENCE, notify, f"The build is not lost. Follow it with: {again}" if again else ""), 0
    wait = SOON if follow else 0.0
    while True:
        page = retrying.request(partial(control.get, "builds", build, "log", after=after, limit=PAGE, wait=wait))
        yield from page["items"]
        after = page["next_after"]
        if not page["items"] and (not follow or page["state"] not in OPEN):
            return
        if screen is not None:
            if page["state"] == "queued" and wait == SOON:
                screen.line(f"  {waiting_words(page.get('builds_before'))}")
            screen.live(NOW.get(page["state"], "done"))
        wait = WAIT if follow else 0.0


def waiting_words(before: int | None) -> str:
    if not before:
        return "the build waits for a worker (windlass serve, windlass worker)"
    return f"the build waits for {before} build{'' if before == 1 else 's'} before it"


def _without_end(errors: list[dict[str, Any]], build: Build) -> list[dict[str, Any]]:
    """Returns the lines without the last ones if these are the error of the build, which `print_end` prints."""
    end = (build["error"] or "").splitlines()
    last = errors[-len(end) :] if end else []
    same = len(last) == len(end) and all(
        line["message"].startswith(text.rstrip(".")) for line, text in zip(last, end, strict=True)
    )
    return errors[: -len(last)] if last and same else errors


def build_line(line: Mapping[str, Any]) -> str:
    level = "" if line["level"] == "info" else f"{line['level']}: "
    return f"  {level}{line['message']}"


def print_end(build: Build, slug: str) -> int:
    """Prints how the build ended, and what changed. Returns the exit code."""
    if build["state"] == "failed":
        print_error(f"{slug}: the build failed: {build['error']}", build["hint"] or "")
        return FAILED
    if build["state"] == "superseded":
        notify(f"{slug}: a newer build replaces this one, which was not done.")
        return FAILED
    notify(f"{slug}: version {build['version']} is ready.")
    for line in changes_in_words(build["changes"]):
        notify(f"  {line}")
    return 0


def changes_in_words(changes: Mapping[str, Any] | None) -> list[str]:
    """Returns a line for each kind of change against the version before."""
    found = []
    for what, change in (changes or {}).items():
        if isinstance(change, dict):
            found += [f"{what} {how}: {', '.join(map(str, names))}" for how, names in change.items() if names]
        elif change:
            names = ", ".join(map(str, change)) if isinstance(change, list) else str(change)
            found.append(f"{what.replace('_', ' ')}: {names}")
    return found if found or changes is None else ["inputs and tasks unchanged"]
