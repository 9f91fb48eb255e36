"""Shows and changes the webhooks of a deployment, and lists, shows and repeats deliveries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TextIO

import click

from windlass.cli.adding_credentials import asked_secrets, from_file_option
from windlass.cli.completion import complete_crew, complete_kickoff
from windlass.cli.exit_codes import FAILED
from windlass.cli.lists import ListByDefault, limit_option, print_page, second
from windlass.cli.printing import columns, json_option, notify, print_json, print_result, print_table
from windlass.cli.servers import server_options

if TYPE_CHECKING:
    from windlass.cli.control_session import ControlSession

MEMBERS = {
    "task": "taskWebhookUrl",
    "step": "stepWebhookUrl",
    "crew": "crewWebhookUrl",
    "events": "webhooks",
    "human-input": "humanInputWebhook",
}
"""Hooks as the commands name them, with the members of the control API."""
HEADINGS = ("WEBHOOK", "HOST", "EVENTS", "CREDENTIALS", "STATE")
OF_DELIVERIES = ("DELIVERY", "CREW", "KICKOFF", "WEBHOOK", "HOST", "STATE", "ATTEMPTS", "ANSWER", "CREATED", "NEXT")
OF_ATTEMPTS = ("ATTEMPT", "SECONDS", "ANSWER")
STATES = ("waiting", "delivered", "failed")
deployment_argument = click.argument("deployment", shell_complete=complete_crew)


@click.group
def webhooks() -> None:
    """Set the webhooks that all kickoffs of a deployment have.

    A webhook is a request that the server sends to a program of yours: after each task or step, for events, when a
    person is asked, and at the end of a kickoff. docs/how-to/webhooks.md describes them.
    """


@webhooks.command
@deployment_argument
@json_option
@server_options
def show(deployment: str, *, control: ControlSession, json_output: bool) -> None:
    """Show the webhooks of a deployment: hosts, never addresses."""
    found = control.get("deployments", deployment, "webhooks")
    if json_output:
        print_json(found)
    elif rows := [_cells(hook, found[member]) for hook, member in MEMBERS.items() if found[member]]:
        print_table(HEADINGS, rows)
    else:
        notify(f"{deployment} has no webhooks. Set one with: windlass webhooks set {deployment} --crew URL")


def _cells(hook: str, webhook: dict[str, Any]) -> list[str]:
    events = ", ".join(webhook.get("events", [])) + (", one by one" if webhook.get("realtime") else "")
    return [hook, webhook["host"], events or "-", webhook["authentication"] or "-", _state(webhook)]


def _state(webhook: dict[str, Any]) -> str:
    match webhook["state"]:
        case "paused":
            return f"paused until {second(webhook['paused_until'])} after {webhook['failures']} failures"
        case "failing":
            return f"failing ({webhook['failures']} in a row)"
        case "off":
            return f"off since {second(webhook['disabled_at'])} (410 Gone)"
    return str(webhook["state"])


@webhooks.command("set")
@deployment_argument
@click.option("--task", metavar="URL", help="Call URL after each task.")
@click.option("--step", metavar="URL", help="Call URL after each step of an agent.")
@click.option("--crew", metavar="URL", help="Call URL at every end of a kickoff.")
@click.option("--events", metavar="URL", help="Send events to URL, in batches.")
@click.option("--event", "types", multiple=True, metavar="TYPE", help="With --events: only events of this type.")
@click.option("--realtime", is_flag=True, help="With --events: send events one by one.")
@click.option("--human-input", metavar="URL", help="Call URL when a person is asked.")
@click.option(
    "--bearer", is_flag=True, help="With --events and --human-input: send a bearer token, which is asked for."
)
@click.option("--basic", metavar="USER", help="With --events and --human-input: send USER and a password.")
@from_file_option
@json_option
@server_options
def set_(
    deployment: str,
    *,
    control: ControlSession,
    types: tuple[str, ...],
    realtime: bool,
    bearer: bool,
    basic: str | None,
    file: TextIO | None,
    json_output: bool,
    **given: str | None,
) -> None:
    """Set webhooks of a deployment.

    They act from the next kickoff on. Others stay as they are. A kickoff's own webhooks replace them, one by one:

    \b
        windlass webhooks set my-crew --crew https://app.example.com/done
        windlass webhooks set my-crew --events https://app.example.com/events --bearer < token.txt

    A token or password is on no command line. The command asks for it, or reads it from standard input or --from-file.
    The URL - is read from there too, for an address that is a secret.
    """  # noqa: D301 - \b keeps click from wrapping the lines
    urls = {name.replace("_", "-"): url for name, url in given.items() if url is not None}
    if not urls:
        raise click.UsageError("Give at least one of --task, --step, --crew, --events and --human-input.")
    if (types or realtime) and "events" not in urls:
        raise click.UsageError("--event and --realtime go with --events.")
    for hook in urls:
        if "@" in urls[hook].partition("?")[0]:
            notify(f"warning: every user of this machine can see a command line, also the password of --{hook}.")
    options = _secrets(urls, basic, file, bearer=bearer)
    found = control.send(
        "PATCH", "deployments", deployment, "webhooks", body=_body(urls, options, types, realtime=realtime)
    )
    if json_output:
        print_json(found)
    notify(f"Set for {deployment}, from the next kickoff on: {', '.join(urls)}")
    notify(f"Test it with: windlass deliveries test {deployment} {next(iter(urls))}")


def _secrets(urls: dict[str, str], user: str | None, file: TextIO | None, *, bearer: bool) -> dict[str, Any]:
    """Reads the credentials, which it returns as members of a webhook, and the URL that is `-`."""
    if (bearer or user) and not {"events", "human-input"} & urls.keys():
        raise click.UsageError("--bearer and --basic go with --events and --human-input.")
    read = [hook for hook, url in urls.items() if url == "-"]
    asked = [*read, *(["token"] if bearer else []), *(["password"] if user else [])]
    if bearer and user:
        raise click.UsageError("Give --bearer or --basic, not both.")
    if file is not None and not asked:
        raise click.UsageError("--from-file is for --bearer, --basic, or the URL -.")
    found = asked_secrets(asked, file)
    urls |= {hook: found[hook] for hook in read}
    if bearer:
        return {"authentication": {"strategy": "bearer", "token": found["token"]}}
    if user:
        return {"authentication": {"strategy": "basic", "username": user, "password": found["password"]}}
    return {}


def _body(urls: dict[str, str], options: dict[str, Any], types: tuple[str, ...], *, realtime: bool) -> dict[str, Any]:
    body: dict[str, Any] = {MEMBERS[hook]: url for hook, url in urls.items()}
    if url := urls.get("events"):
        body["webhooks"] = {"url": url, "events": list(types) or ["*"], "realtime": realtime, **options}
    if url := urls.get("human-input"):
        body["humanInputWebhook"] = {"url": url, **options}
    return body


@webhooks.command
@deployment_argument
@click.argument("hooks", nargs=-1, required=True, type=click.Choice(list(MEMBERS)), metavar="WEBHOOK...")
@json_option
@server_options
def unset(deployment: str, hooks: tuple[str, ...], *, control: ControlSession, json_output: bool) -> None:
    """Remove webhooks of a deployment, from the next kickoff on.

    WEBHOOK is task, step, crew, events or human-input.
    """
    found = control.send("PATCH", "deployments", deployment, "webhooks", body={MEMBERS[hook]: None for hook in hooks})
    if json_output:
        print_json(found)
    notify(f"Removed from {deployment}: {', '.join(hooks)}")


@webhooks.command
@deployment_argument
@click.option("--rotate", is_flag=True, help="Make a new secret. Both sign for 24 hours.")
@json_option
@server_options
def secret(deployment: str, *, control: ControlSession, rotate: bool, json_output: bool) -> None:
    """Print the secret with which receivers verify the webhooks of a deployment.

    After --rotate, webhooks have the signatures of both secrets for 24 hours. Rotate again only after that time.
    """
    path = ("deployments", deployment, "webhooks", "secret")
    found = control.send("POST", *path) if rotate else control.get(*path)
    if json_output:
        print_json(found)
    else:
        print_result(found["secret"])
    if rotate:
        notify("Give it to your receivers within 24 hours. The former secret signs too until then.")


@click.group(cls=ListByDefault)
def deliveries() -> None:
    """List the webhooks that were sent, and send one again.

    A delivery is one webhook of a kickoff, with its attempts. docs/how-to/webhooks.md describes when it is repeated.
    Without a command it lists: `windlass deliveries --state failed`.
    """


@deliveries.command("list")
@click.option("--deployment", metavar="DEPLOYMENT", shell_complete=complete_crew, help="Only those of this crew.")
@click.option("--kickoff", metavar="KICKOFF_ID", shell_complete=complete_kickoff, help="Only those of this kickoff.")
@click.option("--state", type=click.Choice(STATES), help="Only deliveries in this state.")
@limit_option
@json_option
@server_options
def list_(
    *,
    control: ControlSession,
    deployment: str | None,
    kickoff: str | None,
    state: str | None,
    limit: int,
    json_output: bool,
) -> None:
    """List deliveries, newest first.

    ANSWER is that of the newest attempt, NEXT the time of the next one. Times are UTC.
    """
    page = control.pages("deliveries", limit=limit, deployment=deployment, kickoff=kickoff, state=state)
    empty = "No delivery matches." if deployment or kickoff or state else "There are no deliveries yet."
    print_page(page, OF_DELIVERIES, _delivery, member="deliveries", empty=empty, json_output=json_output)


def _delivery(row: dict[str, Any]) -> list[str]:
    attempts = row["attempts"]
    return [
        row["id"],
        row["deployment"],
        row["kickoff_id"],
        _hook(row["hook"]),
        row["host"] or "-",
        row["state"],
        str(len(attempts)),
        _answer(attempts[-1]) if attempts else "-",
        second(row["created_at"]),
        second(row["next_at"]),
    ]


def _answer(attempt: dict[str, Any]) -> str:
    return str(attempt["status"] or attempt["error"] or "-")


def _hook(name: str) -> str:
    return name.replace("_", "-")


@deliveries.command("show")
@click.argument("delivery")
@json_option
@server_options
def show_delivery(delivery: str, *, control: ControlSession, json_output: bool) -> None:
    """Show a delivery with its attempts and the beginning of each answer. Times are UTC."""
    found = control.get("deliveries", delivery)
    if json_output:
        print_json(found)
        return
    when = {"waiting": f", next attempt {second(found['next_at'])}" if found["next_at"] else ""}
    endpoint = {"paused": " (paused)", "off": " (off: it answered 410)"}.get(found["endpoint_state"], "")
    facts = [
        ["Delivery", found["id"]],
        ["Webhook", f"{_hook(found['hook'])} of {found['deployment']}, to {found['host'] or '-'}{endpoint}"],
        ["Kickoff", found["kickoff_id"]],
        ["State", f"{found['state']}{when.get(found['state'], '')}"],
        ["Created", second(found["created_at"])],
    ]
    for line in columns(facts):
        print_result(line)
    if found["attempts"]:
        print_result("")
        rows = [[second(one["at"]), f"{one['seconds']:g}", _words(one)] for one in found["attempts"]]
        print_table(OF_ATTEMPTS, rows)
    if found["state"] != "delivered":
        notify(f"Send it again with: windlass deliveries redeliver {found['id']}")


def _words(attempt: dict[str, Any]) -> str:
    """Returns the status or the error of an attempt, with the answer in one line."""
    words = str(attempt["status"]) if attempt["status"] else attempt["error"] or "-"
    answer = " ".join(attempt["answer"].split())
    return f"{words}  {answer}" if answer else words


@deliveries.command
@click.argument("delivery")
@json_option
@server_options
def redeliver(delivery: str, *, control: ControlSession, json_output: bool) -> None:
    """Send a delivery again, with the same id and body.

    If the address was switched off by an answer of 410, this switches it on.
    """
    found = control.send("POST", "deliveries", delivery, "redeliver")
    if json_output:
        print_json(found)
    notify(f"It is sent again to {found['host'] or 'its address'}. See: windlass deliveries show {found['id']}")


@deliveries.command
@deployment_argument
@click.argument("hook", default="crew", type=click.Choice(list(MEMBERS)), metavar="[WEBHOOK]")
@json_option
@server_options
def test(deployment: str, hook: str, *, control: ControlSession, json_output: bool) -> int:
    """Send a signed request to a webhook of a deployment now, and print the answer.

    WEBHOOK is task, step, crew (the default), events or human-input. The exit code is 1 when the receiver does not
    accept the request.
    """
    body = {"hook": hook.replace("-", "_")}
    found = control.send("POST", "deployments", deployment, "webhooks", "test", body=body)
    if json_output:
        print_json(found)
    else:
        words = "accepted" if found["accepted"] else f"did not accept ({found['error']})"
        notify(f"{found['host']} {words} the request {found['id']} in {found['seconds']:g} s.")
        if found["answer"]:
            print_result(found["answer"])
    return 0 if found["accepted"] else FAILED
