"""A server with data as a small company has them, for screenshots and to look around:

    .venv/bin/python tests/dashboard/demo.py [HOME]

It deploys the examples and two small functions, runs them on scripted answers of the offline model, and copies these
runs over the last week. HOME keeps the package environments, so that the second start is quicker.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests")]

from cli.the_command import Command  # noqa: E402
from dashboard import demo_history  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cli.the_command import Started

PORT = 8123
EXAMPLES = ("research_crew", "meeting_notes_crew", "invoice_function", "triage_flow", "delivery_flow")
FUNCTION = '[project]\nname = "{name}"\nversion = "1"\n[tool.windlass]\nentrypoint = "{entry}"\n'
REPORT = '''"""Writes a report, slowly."""

import time


def report(customer: str, pages: int = 12) -> str:
    """Collects the figures of a customer and writes a report."""
    for page in range(pages):
        print(f"page {page + 1} of {pages}: {customer}")
        time.sleep(20)
    return f"# Report for {customer}\\n\\n{pages} pages."
'''
PRICES = '''"""Watches prices. It needs a key of the shop."""

import os

KEY = os.environ["SHOP_API_KEY"]


def watch(product: str) -> dict:
    return {"product": product}
'''

RULES = """
[[rules]]
contains = "Look up what the notes hold about"
tool = "look_up"
arguments = { topic = "tides" }
latency = "1.2-2.4"
[[rules]]
contains = ["Compare the brief on"]
text = '''# Tides

Most coasts see **two high and two low tides** in a day of about 24 hours and 50 minutes. Each comes some
50 minutes later than the one before, so look it up anew every morning.

Around new and full moon the range is largest: these are *spring tides*. A week later come the *neap tides*.

| tide | moon | range |
|---|---|---|
| spring | new, full | largest |
| neap | half | smallest |

Corrections:
- "always two tides" became "most coasts": some have one.
- The table was added for readers in a hurry.'''
latency = "3.0-5.5"
[[rules]]
contains = ["Write a brief on"]
text = '''# Tides

Most coasts see two high and two low tides in a day of about 24 hours and 50 minutes.

Around new and full moon the range is largest: these are spring tides.'''
latency = "2.5-4.5"
[[rules]]
contains = "Look up what the notes hold about"
text = '''1. Most coasts see two high and two low tides a day (notes)
2. A tidal day lasts 24 hours and 50 minutes (notes)
3. Spring tides come with new and full moon (memory)'''
latency = "1.5-3.0"
[[rules]]
contains = "Write the minutes of this meeting"
text = '''**Decisions**
- The autumn release moves to 12 October.
- Support answers in two languages.

**Open questions**
- Who trains the new colleagues?'''
latency = "2.0-4.0"
[[rules]]
contains = "List what each person must do"
text = '''- Anna: move the release date, 24 September
- Ben: translate the first ten answers, 1 October'''
latency = "1.0-2.0"
[[rules]]
contains = "Answer "
text = "Open the file, choose Print in the menu, and pick your printer. Write again if it does not appear in the list."
latency = "1.0-2.5"
"""


class Demo:
    def __init__(self, home: Path, server: Started, port: int) -> None:
        self.home = home
        self.url = f"http://127.0.0.1:{port}"
        self.windlass = command(home)
        self.server = server

    def link(self, name: str = "anna") -> str:
        """The address that signs a person in, once."""
        return self.run("admin", "users", "link", name)

    def run(self, *arguments: str, ok: bool = True, typed: str = "") -> str:
        ended = self.windlass(*arguments, typed=typed)
        if ok and ended.code:
            raise SystemExit(f"windlass {' '.join(arguments)} failed:\n{ended.out}{ended.err}")
        return ended.out.strip()

    def kickoff(self, slug: str, *more: str, **inputs: Any) -> str:
        return self.run("kickoff", "--deployment", slug, "--inputs-json", json.dumps(inputs), *more)


def command(home: Path) -> Command:
    return Command(home, {"WINDLASS_OFFLINE_SCRIPT": str(home / "answers.toml")})


@contextmanager
def demo(home: Path, port: int = PORT) -> Iterator[Demo]:
    home.mkdir(parents=True, exist_ok=True)
    (home / "answers.toml").write_text(RULES, "utf-8")
    with command(home).started("serve", "--offline-model", "--port", str(port)) as server:
        server.wait_for("Ctrl-C stops")
        found = Demo(home, server, port)
        fill(found)
        yield found
        server.interrupt()
        server.end()


def fill(server: Demo) -> None:
    """Adds people, crews, variables and runs, unless they are there from a start before."""
    if "research-crew" in server.run("deployments", "list"):
        running(server)
        return
    people(server)
    crews(server)
    runs = [*model_runs(server), *plain_runs(server)]
    for run in runs:
        server.windlass("status", run, "--watch")
    with demo_history.connected(server.run("admin", "db", "--url")) as connection:
        demo_history.copy_over_a_week(connection, runs)
    running(server)


def people(server: Demo) -> None:
    for name, role in (("anna", "owner"), ("ben", "developer"), ("carla", "viewer")):
        server.run("admin", "users", "add", name, "--role", role)
    vault = ("--method", "token", "--address", "http://127.0.0.1:8200", "--mount", "secret", "--from-file", "-")
    server.run("credentials", "add", "vault", "team-vault", *vault, typed="hvs.example")


def crews(server: Demo) -> None:
    for name in EXAMPLES:
        server.run("deploy", str(ROOT / "examples" / name))
    for name, entry, code in (("quarterly-report", "report:report", REPORT), ("price-watch", "prices:watch", PRICES)):
        folder = server.home / name
        folder.mkdir(exist_ok=True)
        (folder / "pyproject.toml").write_text(FUNCTION.format(name=name, entry=entry), "utf-8")
        (folder / f"{entry.partition(':')[0]}.py").write_text(code, "utf-8")
        server.run("deploy", str(folder), ok=name != "price-watch")
    server.run("deploy", str(ROOT / "examples/research_crew"), "--message", "Shorter briefs for waiters")
    later = REPORT.replace("pages: int = 12", "pages: int = 12, language: str = 'en'")
    (server.home / "quarterly-report/report.py").write_text(later, "utf-8")
    server.run("deploy", str(server.home / "quarterly-report"), "--message", "Add a language")
    server.run("deployments", "settings", "quarterly-report", "concurrency=1", "limits.timeout=900")
    server.run("deployments", "pause", "delivery-flow")
    server.run("env", "set", "research-crew", "MODEL=gpt-4.1-mini", "SERPER_API_KEY=sk-example-4711")


def model_runs(server: Demo) -> list[str]:
    audiences = ("sailors", "visitors of a museum", "waiters", "children of ten", "new colleagues")
    found = [server.kickoff("research-crew", topic="tides", audience=audience) for audience in audiences]
    notes = "Anna moves the release to 12 October. Ben will translate the answers."
    found += [server.kickoff("meeting-notes", transcript=notes, language="English") for _ in range(2)]
    found += [server.kickoff("triage-flow", subject="Printing", text="How do I print a page?", customer="Mr Okafor")]
    return [*found, server.kickoff("triage-flow", subject="Everything is down", text="Nothing loads.", customer="Acme")]


def plain_runs(server: Demo) -> list[str]:
    paper = {"text": "Paper", "quantity": 4, "unit_price": 12.5}
    found = [
        server.kickoff("invoice-function", lines=[{**paper, "tax_percent": percent}]) for percent in (7, 19, 25, 119)
    ]
    lines = [{**paper, "tax_percent": 19}, {"text": "Desk", "quantity": 1, "unit_price": 349.0, "tax_percent": 19}]
    return [*found, server.kickoff("invoice-function", lines=lines, currency="USD", discount_percent=5)]


def running(server: Demo) -> None:
    """Runs that are open while the pictures are made: one runs, two wait for it, and one of a model has just begun."""
    for customer in ("Acme", "Globex", "Initech"):
        server.kickoff("quarterly-report", customer=customer)
    server.kickoff("research-crew", topic="tides", audience="sailors")


if __name__ == "__main__":
    place = Path(sys.argv[1] if sys.argv[1:] else tempfile.gettempdir() + "/windlass-demo")
    with demo(place) as started:
        print(f"Open {started.link()}", "Ctrl-C stops it.", sep="\n", flush=True)
        with suppress(KeyboardInterrupt):
            threading.Event().wait()
