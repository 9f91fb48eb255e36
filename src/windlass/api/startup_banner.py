"""The text that the server prints when it starts: the addresses, the tokens and commands to try."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING

from windlass.api.crew_api.examples import example_inputs

if TYPE_CHECKING:
    from windlass.access.tokens import ShownTokens
    from windlass.store.deployments import Deployment


JSON = "-H 'Content-Type: application/json'"


def startup_banner(base_url: str, deployment: Deployment, tokens: ShownTokens | None) -> list[str]:
    """Returns lines with commands to paste for the crew. Without `tokens`, they name the command that prints tokens."""
    return [
        "",
        f"The crew {deployment.slug} is served.",
        "",
        *_facts(base_url, tokens),
        "",
        *_commands(base_url, deployment, tokens),
    ]


def _facts(base_url: str, tokens: ShownTokens | None) -> list[str]:
    docs = [f"  Base URL           {base_url}", f"  API docs           {base_url}/docs"]
    if tokens is None:
        return [*docs, "  Tokens             windlass tokens show"]
    return [
        *docs,
        f"  Bearer Token       {tokens.organization.reveal()}   (everything on this crew)",
        f"  User Bearer Token  {tokens.user.reveal()}   (kickoffs of the user {tokens.user_name})",
    ]


def _commands(base_url: str, deployment: Deployment, tokens: ShownTokens | None) -> list[str]:
    token = tokens.organization.reveal() if tokens else "$WINDLASS_TOKEN"
    bearer = f'-H "Authorization: Bearer {token}"'
    schema = deployment.version.manifest.inputs_schema if deployment.version else {}
    body = shlex.quote(json.dumps({"inputs": example_inputs(schema)}, ensure_ascii=False))
    begin = "Try it:" if tokens else "Try it, with WINDLASS_TOKEN set to one of them:"
    return [
        begin,
        f"  curl -sS {bearer} {base_url}/inputs",
        f"  KICKOFF=$(curl -sS {bearer} {JSON} -d {body} {base_url}/kickoff | cut -d'\"' -f4); echo $KICKOFF",
        f'  curl -sS {bearer} "{base_url}/status/$KICKOFF?wait=30"',
        "",
        "Ctrl-C stops it; accepted kickoffs wait for the next start.",
    ]
