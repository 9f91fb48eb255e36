from __future__ import annotations

from typing import Any

from windlass.api.problems import TITLES
from windlass.api.status_examples import EXAMPLE_ID
from windlass.embedded.schema_sample import sample

BATCH_ANSWER = {
    "kickoffs": [
        {"kickoff_id": EXAMPLE_ID},
        {
            "error": {
                "status": 422,
                "error": TITLES[422],
                "message": "Required inputs are missing: audience. GET /inputs describes them.",
                "details": {"missing_inputs": ["audience"]},
            }
        },
    ]
}


def example_inputs(schema: dict[str, Any]) -> dict[str, Any]:
    """A value that fits for each required input; for people to replace."""
    properties = schema.get("properties", {})
    return {name: _example(properties.get(name, {}), name, schema) for name in schema.get("required", ())}


def _example(wanted: dict[str, Any], name: str, schema: dict[str, Any]) -> Any:
    given = wanted.get("examples") or wanted.get("enum")
    return given[0] if given else sample({"$defs": schema.get("$defs", {}), **wanted}, f"some {name}")
