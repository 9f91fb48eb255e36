"""The three calls of a crew in several languages, with inputs of this crew, to paste and run."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

TOKEN = "WINDLASS_TOKEN"  # noqa: S105 - the name of a variable
"""The environment variable from which each example takes the token."""
LONGEST_LINE = 88
BEARER = f'-H "Authorization: Bearer ${TOKEN}"'
JSON_TYPE = "-H 'Content-Type: application/json'"
NAME = re.compile(r"[^\W\d]\w*")


@dataclass(frozen=True, slots=True)
class Example:
    """`runs` names the place to paste the text. `note` is what the example needs beyond the token."""

    key: str
    label: str
    runs: str
    text: str
    note: str = ""


PROFILES = {
    "documented": "for programs that follow the public description",
    "live": "for crewai-tools, Semantic Kernel, and programs of the hosted product",
}
"""The profiles of answers, and which programs read them."""


def examples(base_url: str, slug: str, inputs: Mapping[str, Any], profile: str) -> list[Example]:
    """Returns the examples. `profile` is that of the crew's answers."""
    needs_live = (
        ""
        if profile == "live"
        else (
            "InvokeCrewAIAutomationTool reads answers of the profile live. Set it under Settings, or make a token with "
            "it: windlass tokens create --profile live"
        )
    )
    return [
        Example("curl", "curl", "In a shell", _curl(base_url, inputs)),
        Example("python", "Python", "Needs the package requests", _python(base_url, inputs)),
        Example("javascript", "JavaScript", "For Node.js 18 or newer: save it as crew.mjs", _js(base_url, inputs)),
        Example("tool", "crewai-tools", "A tool for an agent of CrewAI", _tool(base_url, slug, inputs), needs_live),
    ]


def kickoff_command(base_url: str, inputs: Mapping[str, Any]) -> str:
    """Returns the curl command that starts a kickoff with these inputs."""
    body = shlex.quote(_json({"inputs": inputs}))
    return f"curl -sS {base_url}/kickoff \\\n  {BEARER} \\\n  {JSON_TYPE} \\\n  -d {body}"


def _curl(base_url: str, inputs: Mapping[str, Any]) -> str:
    return (
        f"curl -sS {base_url}/inputs \\\n  {BEARER}\n\n"
        f"KICKOFF=$({kickoff_command(base_url, inputs)} | cut -d'\"' -f4)\n\n"
        f'curl -sS "{base_url}/status/$KICKOFF?wait=30" \\\n  {BEARER}'
    )


def _python(base_url: str, inputs: Mapping[str, Any]) -> str:
    return f"""import os

import requests

crew = "{base_url}"
session = requests.Session()
session.headers["Authorization"] = f"Bearer {{os.environ['{TOKEN}']}}"

print(session.get(f"{{crew}}/inputs").json())

inputs = {python_literal(inputs)}
answer = session.post(f"{{crew}}/kickoff", json={{"inputs": inputs}})
answer.raise_for_status()
kickoff_id = answer.json()["kickoff_id"]

status = {{"status": "running"}}
while status["status"] == "running":
    answer = session.get(f"{{crew}}/status/{{kickoff_id}}", params={{"wait": 30}})
    answer.raise_for_status()
    status = answer.json()
print(status.get("result") or status.get("error"))"""


def _js(base_url: str, inputs: Mapping[str, Any]) -> str:
    return f"""const crew = "{base_url}";
const headers = {{ Authorization: `Bearer ${{process.env.{TOKEN}}}`, "Content-Type": "application/json" }};

async function call(path, options = {{}}) {{
  const answer = await fetch(crew + path, {{ headers, ...options }});
  const body = await answer.json();
  if (!answer.ok) throw new Error(body.message);
  return body;
}}

console.log(await call("/inputs"));

const inputs = {_json(inputs)};
const {{ kickoff_id }} = await call("/kickoff", {{ method: "POST", body: JSON.stringify({{ inputs }}) }});

let status;
do status = await call(`/status/${{kickoff_id}}?wait=30`);
while (status.status === "running");
console.log(status.result ?? status.error);"""


def _tool(base_url: str, slug: str, inputs: Mapping[str, Any]) -> str:
    described = "".join(f"\n        {_quoted(name)}: Field(description={_quoted(name)})," for name in inputs)
    return f"""import os

from crewai_tools import InvokeCrewAIAutomationTool
from pydantic import Field

tool = InvokeCrewAIAutomationTool(
    crew_api_url="{base_url}",
    crew_bearer_token=os.environ["{TOKEN}"],
    crew_name="{slug}",
    crew_description="Runs the crew {slug}.",
    crew_inputs={{{described}{chr(10) + "    " if described else ""}}},
)
print(tool.run({_arguments(inputs)}))"""


def _arguments(inputs: Mapping[str, Any]) -> str:
    if all(NAME.fullmatch(name) for name in inputs):
        return ", ".join(f"{name}={python_literal(value)}" for name, value in inputs.items())
    return f"**{python_literal(inputs)}"


def python_literal(value: Any, indent: int = 0) -> str:
    """Returns a JSON value as Python source, on several lines if one line would be long."""
    match value:
        case None | bool():
            return repr(value)
        case str():
            return _quoted(value)
        case dict() if value:
            parts = [f"{_quoted(name)}: {python_literal(one, indent + 4)}" for name, one in value.items()]
            return _enclosed("{", parts, "}", indent)
        case list() if value:
            return _enclosed("[", [python_literal(one, indent + 4) for one in value], "]", indent)
    return repr(value)


def _enclosed(begin: str, parts: list[str], end: str, indent: int) -> str:
    line = f"{begin}{', '.join(parts)}{end}"
    if len(line) <= LONGEST_LINE and "\n" not in line:
        return line
    space = " " * (indent + 4)
    return f"{begin}\n" + "".join(f"{space}{part},\n" for part in parts) + " " * indent + end


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _json(value: Any) -> str:
    line = json.dumps(value, ensure_ascii=False)
    return line if len(line) <= LONGEST_LINE else json.dumps(value, ensure_ascii=False, indent=2)
