"""Calls a crew as crewai-tools does, unmodified: the base URL, the token and each call's inputs come on standard input
as JSON, and what the tool returned goes out as JSON.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from crewai_tools import InvokeCrewAIAutomationTool
from pydantic import Field


def main() -> None:
    asked: dict[str, Any] = json.load(sys.stdin)
    names = {name for inputs in asked["calls"] for name in inputs}
    tool = InvokeCrewAIAutomationTool(
        crew_api_url=asked["url"],
        crew_bearer_token=asked["token"],
        crew_name="the crew",
        crew_description="A crew of this server.",
        max_polling_time=60,
        crew_inputs={name: Field(default=None, description=name) for name in names},
    )
    returned = [tool._run(**inputs) for inputs in asked["calls"]]
    sys.stdout.write(json.dumps(returned))


main()
