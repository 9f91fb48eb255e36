"""The lines that show a person how to use a crew: its addresses, its tokens, and commands to paste."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any

from windlass.api.crew_api.examples import example_inputs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from windlass.secrets.secret import Secret

JSON = "-H 'Content-Type: application/json'"


def welcome(
    base_url: str,
    schema: Mapping[str, Any],
    tokens: tuple[Secret, Secret, str] | None,
    show_tokens: str = "windlass tokens show",
) -> list[str]:
    """`tokens` are the organization's token, a user's token and the name of that user. Without them, the lines name the
    command that shows tokens. `schema` is that of the inputs.
    """
    return [*_facts(base_url, tokens, show_tokens), "", *_commands(base_url, schema, tokens)]


def _facts(base_url: str, tokens: tuple[Secret, Secret, str] | None, show_tokens: str) -> list[str]:
    docs = [f"  Base URL           {base_url}", f"  API docs           {base_url}/docs"]
    if tokens is None:
        return [*docs, f"  Tokens             {show_tokens}"]
    organization, user, name = tokens
    return [
        *docs,
        f"  Bearer Token       {organization.reveal()}   (everything on this crew)",
        f"  User Bearer Token  {user.reveal()}   (kickoffs of the user {name})",
    ]


def _commands(base_url: str, schema: Mapping[str, Any], tokens: tuple[Secret, Secret, str] | None) -> list[str]:
    token = tokens[0].reveal() if tokens else "$WINDLASS_TOKEN"
    bearer = f'-H "Authorization: Bearer {token}"'
    body = shlex.quote(json.dumps({"inputs": example_inputs(dict(schema))}, ensure_ascii=False))
    begin = "Try it:" if tokens else "Try it, with WINDLASS_TOKEN set to one of them:"
    return [
        begin,
        f"  curl -sS {bearer} {base_url}/inputs",
        f"  KICKOFF=$(curl -sS {bearer} {JSON} -d {body} {base_url}/kickoff | cut -d'\"' -f4); echo $KICKOFF",
        f'  curl -sS {bearer} "{base_url}/status/$KICKOFF?wait=30"',
    ]
