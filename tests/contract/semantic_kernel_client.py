"""Calls a crew as Semantic Kernel does, unmodified: the base URL and the token come on standard input as JSON, and what
the client returned goes out as JSON. It runs in the environment of requirements/semantic-kernel.txt.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import aiohttp
from semantic_kernel import Kernel  # type: ignore[import-not-found]
from semantic_kernel.core_plugins.crew_ai import CrewAIEnterprise  # type: ignore[import-not-found]
from semantic_kernel.functions import KernelParameterMetadata  # type: ignore[import-not-found]


async def main() -> None:
    asked: dict[str, str] = json.load(sys.stdin)
    async with aiohttp.ClientSession() as session:
        crew = CrewAIEnterprise(asked["url"], asked["token"], 0.05, 60.0, session=session)
        try:
            sys.stdout.write(json.dumps(await returned_by(crew)))
        finally:
            await crew.client.session.close()


async def returned_by(crew: Any) -> dict[str, Any]:
    good = await crew.kickoff({"leaf": "green"})
    result = await crew.wait_for_crew_completion(good)
    status = await crew.get_crew_kickoff_status(good)
    failing = await crew.kickoff({"leaf": "none"})
    failure = await crew.wait_for_crew_completion(failing)
    return {
        "result": result,
        "state": status.state.value,
        "same": status.result == result,
        "null": await error_of(crew.kickoff()),
        "failure": failure,
        "failed": (await crew.get_crew_kickoff_status(failing)).state.value,
        "plugin": await returned_by_the_plugin(crew),
    }


async def returned_by_the_plugin(crew: Any) -> str:
    leaf = KernelParameterMetadata(
        name="leaf", description="The leaf.", default_value=None, type_="str", is_required=True, type_object=str
    )
    plugin = crew.create_kernel_plugin("brewery", "Brews tea.", [leaf])
    kernel = Kernel()
    kernel.add_plugin(plugin)
    return str(await kernel.invoke(plugin["kickoff_and_wait"], leaf="black"))


async def error_of(call: Any) -> str:
    try:
        await call
    except Exception as error:  # noqa: BLE001 - the client's own class
        return f"{error} {error.__cause__}"
    return "no error"


asyncio.run(main())
