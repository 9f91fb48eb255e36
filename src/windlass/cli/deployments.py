"""Lists the deployments of a server, and manages one: its builds, versions, pause and removal."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from windlass.cli.completion import complete_crew
from windlass.cli.deployment_settings import settings
from windlass.cli.lists import ListByDefault, limit_option, print_page, second
from windlass.cli.members import members
from windlass.cli.printing import columns, json_option, notify, print_json, print_result
from windlass.cli.servers import server_options

if TYPE_CHECKING:
    from windlass.cli.control_session import ControlSession

HEADINGS = ("CREW", "STATE", "VERSION", "RUNNING", "WAITING", "CONCURRENCY", "WEIGHT", "LAST KICKOFF")
OF_BUILDS = ("BUILD", "STATE", "VERSION", "FROM", "STARTED", "BY", "NOTE", "ERROR")
OF_VERSIONS = ("VERSION", "CURRENT", "CREATED", "BUILD", "CHANGES")
STATES = ("building", "online", "paused", "failed")
ORDERS = ("slug", "-slug", "created_at", "-created_at")
LONGEST_CELL = 60

slug_argument = click.argument("slug", metavar="DEPLOYMENT", shell_complete=complete_crew)


@click.group(cls=ListByDefault)
def deployments() -> None:
    """List the crews of the server, and manage one.

    `windlass deploy PATH` makes a deployment. docs/how-to/deploy.md describes them. Without a command it lists:
    `windlass deployments --state paused`.
    """


@deployments.command("list")
@click.option("--state", type=click.Choice(STATES), help="Only deployments in this state.")
@click.option("--search", metavar="TEXT", help="Only deployments with this text in their name.")
@click.option("--order", type=click.Choice(ORDERS), default="slug", show_default=True, help="Order; - reverses it.")
@limit_option
@json_option
@server_options
def list_(
    *, control: ControlSession, state: str | None, search: str | None, order: str, limit: int, json_output: bool
) -> None:
    """List the crews, with how many of their kickoffs run and wait.

    Times are UTC. docs/concepts/queue.md describes the columns of the queue.
    """
    page = control.pages("deployments", limit=limit, state=state, search=search, order=order)
    filtered = state or search
    empty = "No deployment matches." if filtered else "There is no crew yet. Deploy one with: windlass deploy PATH"
    print_page(page, HEADINGS, _cells, empty=empty, json_output=json_output)


def _cells(row: dict[str, Any]) -> list[str]:
    return [
        row["slug"],
        row["state"],
        str(row["version"] or "-"),
        str(row["running"]),
        str(row["waiting"]),
        str(row["concurrency"] or "-"),
        f"{row['weight']:g}",
        second(row["last_kickoff_at"]),
    ]


@deployments.command
@slug_argument
@click.option("--tokens", "with_tokens", is_flag=True, help="Also show the two tokens of the crew.")
@json_option
@server_options
def show(slug: str, *, control: ControlSession, with_tokens: bool, json_output: bool) -> None:
    """Show a deployment: its address, version, latest build, queue and warnings."""
    from windlass.cli.deploy import base_url_of

    found = control.get("deployments", slug)
    base_url = base_url_of(control, found)
    tokens = control.get("deployments", slug, "tokens") if with_tokens else {}
    if json_output:
        print_json({**found, "base_url": base_url, **({"tokens": tokens} if tokens else {})})
        return
    build, version = found["latest_build"], found["version"]
    facts = [
        ["Crew", f"{found['slug']} ({found['state']})"],
        ["Base URL", base_url],
        ["Version", str(version) if version else "none yet"],
        ["Latest build", f"{build['id']} ({build['state']})" if build else "none"],
        [
            "Kickoffs",
            f"{found['running']} running, {found['waiting']} waiting; last {second(found['last_kickoff_at'])}",
        ],
        ["Visible to", found.get("visible_to", "everybody")],
        ["Created", second(found["created_at"])],
    ]
    if tokens:
        facts.append(["Bearer Token", tokens["organization_token"]])
        facts.append([f"User Bearer Token of {tokens['user']}", tokens["user_token"]])
    for line in [*columns(facts), *map(_warning, found.get("warnings", []))]:
        print_result(line)


def _warning(found: dict[str, Any]) -> str:
    where = f" (kickoff {found['kickoff_id']})" if found["kickoff_id"] else ""
    return f"Warning: {found['message']}{where}"


@deployments.command
@slug_argument
@click.option("--no-wait", is_flag=True, help="Do not wait for the end of the build.")
@json_option
@server_options
def redeploy(slug: str, *, control: ControlSession, no_wait: bool, json_output: bool) -> int:
    """Build the files of the current version again.

    The build reads the secrets of static credentials again, so that kickoffs get rotated ones. The version before
    serves until the new one is ready. Exits with 1 when the build fails.
    """
    from windlass.cli.builds import follow_build, print_end
    from windlass.cli.deploy import command

    build = control.send("POST", "deployments", slug, "redeploy")["build"]
    again = command("deployments", "logs", slug, "--build", build["id"], "--follow", control=control)
    code = 0
    if no_wait:
        notify(f"Follow the build with: {again}")
    else:
        build = follow_build(control, build["id"], again=again)
        code = print_end(build, slug)
    if json_output:
        print_json({"deployment": slug, "build": build})
    return code


@deployments.command
@slug_argument
@click.option("--build", metavar="ID", help="The build, by default the latest one.")
@click.option("-f", "--follow", is_flag=True, help="Print new lines until the build has ended.")
@click.option("--json", "json_output", is_flag=True, help="Print each line whole, as one line of JSON.")
@server_options
def logs(slug: str, *, control: ControlSession, build: str | None, follow: bool, json_output: bool) -> int:
    """Show the log of a build.

    For what a kickoff did, use `windlass logs KICKOFF_ID`. With --follow, exits with 1 when the build fails.
    """
    from windlass.cli.builds import build_line, build_log, follow_build, print_end
    from windlass.cli.deploy import command

    if build is None:
        build = _latest_build(control, slug)
        if build is None:
            notify(f"{slug} has no builds.")
            return 0
    if follow and not json_output:
        again = command("deployments", "logs", slug, "--build", build, "--follow", control=control)
        return print_end(follow_build(control, build, again=again, show=print_result), slug)
    for line in build_log(control, build, follow=follow):
        print_result(json.dumps(line, ensure_ascii=False) if json_output else build_line(line))
    return 0


def _latest_build(control: ControlSession, slug: str) -> str | None:
    found = control.get("deployments", slug)["latest_build"]
    return str(found["id"]) if found else None


@deployments.command
@slug_argument
@limit_option
@json_option
@server_options
def builds(slug: str, *, control: ControlSession, limit: int, json_output: bool) -> None:
    """List the builds of a deployment, newest first. Times are UTC."""
    page = control.pages("deployments", slug, "builds", limit=limit)
    print_page(page, OF_BUILDS, _build_cells, member="builds", empty=f"{slug} has no builds.", json_output=json_output)


def _build_cells(row: dict[str, Any]) -> list[str]:
    return [
        row["id"],
        row["state"],
        str(row["version"] or "-"),
        origin_in_words(row["origin"]),
        second(row["started_at"] or row["created_at"]),
        row["created_by"] or "-",
        _short(row["origin"].get("message") or "-"),
        _short(row["error"] or ""),
    ]


def origin_in_words(origin: dict[str, Any]) -> str:
    """Returns where the files of a build came from, such as `https://github.com/acme/tea@main`, and what was chosen in
    them.
    """
    place = "upload" if origin.get("type") == "zip" else str(origin.get("type", "-"))
    if "url" in origin:
        place = f"{origin['url']}@{origin['ref']}" if origin.get("ref") else str(origin["url"])
    within = ", ".join(str(origin[name]) for name in ("subfolder", "entrypoint") if origin.get(name))
    return f"{place} ({within})" if within else place


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_CELL else f"{line[: LONGEST_CELL - 3]}..."


@deployments.command
@slug_argument
@limit_option
@json_option
@server_options
def versions(slug: str, *, control: ControlSession, limit: int, json_output: bool) -> None:
    """List the versions of a deployment, newest first. Times are UTC."""
    page = control.pages("deployments", slug, "versions", limit=limit)
    empty = f"{slug} has no version yet. Its builds: windlass deployments builds {slug}"
    print_page(page, OF_VERSIONS, _version_cells, member="versions", empty=empty, json_output=json_output)


def _version_cells(row: dict[str, Any]) -> list[str]:
    from windlass.cli.builds import changes_in_words

    changes = "; ".join(changes_in_words(row["changes"]))
    return [
        str(row["number"]),
        "yes" if row["current"] else "",
        second(row["created_at"]),
        str(row["build"] or "-"),
        _short(changes) or "-",
    ]


@deployments.command
@slug_argument
@click.argument("version", type=click.IntRange(min=1))
@json_option
@server_options
def promote(slug: str, version: int, *, control: ControlSession, json_output: bool) -> None:
    """Make a version the current one, which new kickoffs run on.

    Kickoffs finish on the version that accepted them.
    """
    answer = control.send("POST", "deployments", slug, "promote", body={"version": version})
    _print_version(answer, slug, json_output=json_output)


@deployments.command
@slug_argument
@json_option
@server_options
def rollback(slug: str, *, control: ControlSession, json_output: bool) -> None:
    """Make the previous version current.

    Kickoffs finish on the version that accepted them.
    """
    answer = control.send("POST", "deployments", slug, "rollback", body={})
    _print_version(answer, slug, json_output=json_output)


def _print_version(answer: dict[str, Any], slug: str, *, json_output: bool) -> None:
    if json_output:
        print_json(answer)
    notify(f"Version {_number(answer)} of {slug} serves new kickoffs now.")


def _number(answer: dict[str, Any]) -> Any:
    version = answer["version"]
    return version["number"] if isinstance(version, dict) else version


@deployments.command
@slug_argument
@json_option
@server_options
def pause(slug: str, *, control: ControlSession, json_output: bool) -> None:
    """Pause a crew: its new kickoffs are accepted, and wait.

    Kickoffs that already run are not affected.
    """
    answer = control.send("POST", "deployments", slug, "pause")
    if json_output:
        print_json(answer)
    notify(f"The crew {slug} is paused. Resume it with: windlass deployments resume {slug}")


@deployments.command
@slug_argument
@json_option
@server_options
def resume(slug: str, *, control: ControlSession, json_output: bool) -> None:
    """Resume a paused crew: its waiting kickoffs can start."""
    answer = control.send("POST", "deployments", slug, "resume")
    if json_output:
        print_json(answer)
    notify(f"The crew {slug} is resumed.")


@deployments.command
@slug_argument
@click.option("--stop", is_flag=True, help="Also if kickoffs have not ended: stop them.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@server_options
def remove(slug: str, *, control: ControlSession, stop: bool, yes: bool, json_output: bool) -> None:
    """Remove a deployment for good, with all its data.

    Every server refuses the crew's address and tokens at once. Then the kickoffs with their results, the versions, the
    builds and the variables are deleted. Only a backup can restore them.
    """
    from windlass.cli.kickoffs import confirm

    found = control.get("deployments", slug)
    kickoffs = found["running"] + found["waiting"]
    still = f" {kickoffs} of its kickoffs have not ended." if kickoffs else ""
    confirm(f"Remove {slug} from {control.address} for good, with all its kickoffs?{still}", yes=yes)
    answer = control.send("DELETE", "deployments", slug, stop=stop or None)
    if json_output:
        print_json({"slug": slug, **answer})
    notify(f"The crew {slug} is removed. Its data is deleted in the background.")


deployments.add_command(settings)
deployments.add_command(members)
