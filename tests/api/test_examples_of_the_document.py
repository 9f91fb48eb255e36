"""What the document and the server's startup banner show works when it is sent."""

from __future__ import annotations

import asyncio
import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from api.runs import begin_the_only_one
from contract.test_openapi_document import SCHEMAS
from windlass.access.tokens import ShownTokens
from windlass.secrets.secret import Secret
from windlass.wiring.dev import startup_banner

if TYPE_CHECKING:
    from api.serving import Crew, Server

pytestmark = pytest.mark.asyncio(loop_scope="session")

BOURNE_SHELL = "/bin/sh"


def example_of(crew: Crew) -> dict[str, Any]:
    content: dict[str, Any] = crew.document["paths"]["/kickoff"]["post"]["requestBody"]["content"]
    body: dict[str, Any] = content["application/json"]["example"]
    return body


async def shell(line: str, **environment: str) -> str:
    process = await asyncio.create_subprocess_exec(
        BOURNE_SHELL, "-c", line, env={"PATH": "/usr/bin:/bin", **environment}, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, line
    return output.decode()


@pytest.mark.parametrize("kind", SCHEMAS)
async def test_the_examples_of_any_crew_are_taken(server: Server, kind: str) -> None:
    crew = await server.crew(inputs_schema=SCHEMAS[kind])
    body = example_of(crew)
    answer = await crew.post(body)
    assert answer.status_code == 200, answer.text
    assert (await crew.row(answer.json()["kickoff_id"]))["inputs"] == body["inputs"]


async def test_the_served_document_is_that_of_the_crew(crew: Crew) -> None:
    answer = await crew.get("/openapi.json", token="")
    assert (answer.status_code, answer.json()) == (200, crew.document)


async def run_the_next(crew: Crew) -> None:
    """Does what a worker would do with the kickoff that comes."""
    await (await begin_the_only_one(crew)).succeed()


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.parametrize("with_tokens", [True, False])
async def test_the_lines_of_the_greeting_work_when_they_are_pasted(crew: Crew, with_tokens: bool) -> None:
    tokens = ShownTokens(Secret(crew.token), Secret(crew.user_token), "owner") if with_tokens else None
    lines = startup_banner(crew.base_url, crew.deployment, tokens)
    pasted = "; echo\n".join(line for line in lines if "curl" in line)
    printed, _ = await asyncio.gather(shell(pasted, WINDLASS_TOKEN=crew.token), run_the_next(crew))
    inputs, kickoff, status = filter(None, printed.splitlines())
    assert json.loads(inputs)["inputs"] == ["topic", "audience"]
    assert json.loads(status)["kickoff_id"] == kickoff
    assert json.loads(status)["state"] == "SUCCESS"


async def test_the_greeting_shows_tokens_only_where_it_is_given_them(crew: Crew) -> None:
    shown = "\n".join(startup_banner(crew.base_url, crew.deployment, None))
    assert crew.token not in shown
    assert "windlass tokens show" in shown
    tokens = ShownTokens(Secret(crew.token), Secret(crew.user_token), "owner")
    told = "\n".join(startup_banner(crew.base_url, crew.deployment, tokens))
    assert crew.token in told
    assert crew.user_token in told
    assert crew.base_url in told
