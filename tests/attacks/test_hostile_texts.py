"""Texts of crews and of other servers are read in bounded time, and pages that show them do not stop the server."""

from __future__ import annotations

import asyncio
import re
import time
from typing import TYPE_CHECKING, Any

import pytest

from dashboard.made_runs import started
from dashboard.people import Visitor
from windlass.api.crew_api.kickoff_requests import AT_A_TIME
from windlass.dashboard.output import MOST_LINES, MOST_RENDERED, Value, markdown
from windlass.kickoffs.inputs import InputsCheck
from windlass.projects import poetry
from windlass.projects.git import FAILURES
from windlass.rights import Role
from windlass.runner.incoming import too_deep
from windlass.secrets.oidc import BadSigningKey, keys_of_variable
from windlass.secrets.provider import first_meaning
from windlass.secrets.providers.vault.manager import HANDSHAKES
from windlass_child.masking.server_paths import ServerPaths

if TYPE_CHECKING:
    from collections.abc import Callable

    from api.runs import Run
    from api.serving import Crew

SECONDS = 3.0
"""The CPU time for a page. It takes less than 0.5 s; each of these texts has taken 4 to 70 s."""
LONG = 200_000
SLASHES = "/" * 60_000
SERVER_PATHS = ServerPaths(f"/var/home/sources/{'a' * 64}", "/var/home/environments/b/bin/python", "/var/home/runs/c")
CELLS = "|a" * 1000 + "|\n" + "|-" * 1000 + "|\n" + "a\n" * 65 + "\n"
MANY_TABLES = ("|a" * 31 + "|\n" + "|-" * 31 + "|\n" + "a\n" * 260 + "\n") * 3
BOMBS = {
    "one wide table": "|a" * 5000 + "|\n" + "|-" * 5000 + "|\n" + "a\n" * 790,
    "wide tables": CELLS * 7,
    "tables of the most columns": MANY_TABLES,
    "nested lists": "".join("  " * depth + "- a\n" for depth in range(160)),
    "lists in a line": "- " * 16_000,
    "quotes": (">" * 39 + "a\n") * 800,
    "brackets": "[" * 32_000,
    "links in links": "[" * 400 + "a" + "](b)" * 400,
    "open links": "[a](" * 8000,
    "emphasis": "*a_ " * 8000,
    "closed emphasis": "*" * 16_000 + "a" + "*" * 15_000,
    "references": "[a]: u\n" * 400 + "[a] " * 7000,
    "code marks": "".join("`" * length + "a" for length in range(1, 250)),
    "tags": "<a " * 10_000,
}


def cpu_seconds(work: Callable[[], Any]) -> float:
    before = time.thread_time()
    work()
    return time.thread_time() - before


async def opened(crew: Crew, visitor: Visitor, run: Run, query: str = "") -> str:
    """Opens the page of an execution, while somebody else asks for /health. Both are answered."""
    url = f"/ui/crews/{crew.deployment.slug}/executions/{run.claimed.id}{query}"
    before = time.process_time()
    page = asyncio.create_task(visitor.get(url))
    while not page.done():
        assert (await visitor.get("/health")).status_code == 200
    answer = page.result()
    assert answer.status_code == 200
    assert time.process_time() - before < SECONDS
    return answer.text


@pytest.mark.asyncio(loop_scope="session")
async def test_pages_with_hostile_texts_are_shown_in_bounded_time(crew: Crew) -> None:
    visitor = await Visitor.of(crew.server, Role.VIEWER)
    writer = await started(crew)
    writer.event("traceback", text=f"Traceback (most recent call last):\nValueError: {SLASHES}\n")
    await writer.write()
    await writer.run.fail(error=f"ValueError: {SLASHES}")
    assert "/" * 10_000 in await opened(crew, visitor, writer.run)
    writer = await started(crew)
    for _ in range(1000):
        writer.event("llm_stream_chunk", chunk="x" * 3900, agent_role="a")
    await writer.write()
    page = await opened(crew, visitor, writer.run, "?tab=log")
    assert 100_000 < page.count("x") < 300_000
    for name, text in BOMBS.items():
        writer = await started(crew)
        await writer.run.succeed(text)
        assert "markdown" in (await opened(crew, visitor, writer.run, "?view=markdown")), name
    await visitor.close()


@pytest.mark.parametrize("name", BOMBS)
def test_markdown_takes_bounded_time_and_makes_bounded_html(name: str) -> None:
    part = Value(BOMBS[name], None, is_text=True, is_whole=True, bytes=0).rendered_part
    assert len(part) <= MOST_RENDERED
    assert part.count("\n") <= MOST_LINES
    found: list[str] = []
    assert cpu_seconds(lambda: found.append(markdown.__wrapped__(part))) < SECONDS
    assert len(found[0]) < 20 * MOST_RENDERED


def test_a_table_of_more_columns_is_shown_as_text() -> None:
    assert "<td>" in markdown("|a" * 32 + "\n" + "|-" * 32 + "\n" + "|b" * 32)
    wide = markdown("|a" * 33 + "\n" + "|-" * 33 + "\n" + "|b" * 33)
    assert "<table" not in wide
    assert "|b|b" in wide


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (SERVER_PATHS.out_of, SLASHES),
        (SERVER_PATHS.out_of, "/var/home/sources/" * (LONG // 9)),
        (SERVER_PATHS.out_of, "a/" * LONG),
        (lambda text: first_meaning(HANDSHAKES, text), "400 " + "role " * 40_000),
        (lambda text: poetry.satisfies("3.11", text), ">=3.9" + " " * 45_000 + ","),
        (lambda text: poetry.satisfies("3.11", text), "1 |" * LONG),
        (lambda text: poetry.satisfies("3.11", text), "1" * LONG),
        (lambda text: too_deep(text.encode()), "{" + '\\"' * LONG),
    ],
)
def test_a_text_that_took_seconds_is_read_at_once(read: Callable[[str], object], text: str) -> None:
    assert cpu_seconds(lambda: read(text)) < 1


def test_a_key_that_does_not_end_is_refused_at_once() -> None:
    with pytest.raises(BadSigningKey, match="holds no PEM private key"):
        keys_of_variable("-----BEGIN PRIVATE KEY----- " * 10_000)


def test_the_reasons_of_git_and_vault_are_found_as_before() -> None:
    found = first_meaning(HANDSHAKES, '400 ["role \\"crews\\" could not be found"]')
    assert found is not None
    assert "has no such role" in str(found)
    lines = "remote: a line\nremote: Repository not found.\n"
    reasons = [reason for pattern, reason, _ in FAILURES if re.search(pattern, lines)]
    assert reasons == ["there is no repository at this address, or it is private"]


@pytest.mark.parametrize(("number", "length"), [(30, 32), (100, 58), (1000, 32)])
def test_similar_inputs_of_a_batch_are_searched_in_bounded_time(number: int, length: int) -> None:
    """The crew and the client choose names that differ by their numbers alone. The event loop turns after AT_A_TIME."""

    def name(number: int) -> str:
        at = number % (length - 5)
        return f"{'a' * (at + 1)}{number:04d}{'a' * (length - at - 5)}"

    declared: dict[str, Any] = {name(one): {} for one in range(number)}
    check = InputsCheck.of({"type": "object", "properties": declared, "additionalProperties": False})
    given = {name(5000 + one): 1 for one in range(5)}
    assert len(check.unknown(given)) == 5
    assert cpu_seconds(lambda: [check.unknown(given) for _ in range(AT_A_TIME)]) < 1


def test_the_similar_input_of_a_wrong_name_is_found() -> None:
    check = InputsCheck.of({"properties": {"audience": {}, "topic": {}}, "additionalProperties": False})
    assert check.unknown({"audiense": 1, "topic": 1, "x" * 33: 1}) == {"audiense": "audience", "x" * 33: None}
