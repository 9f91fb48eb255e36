"""The bodies of webhooks, which `windlass.kickoffs.webhooks` makes, for the OpenAPI document."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import BaseModel, Field

from windlass.api.crew_api.schemas import CallbackRequest, StateWord, StatusWord

ID = "0199c2a4-7d3e-7c11-9a52-6f0d1b8e4c77"
OF_FLOWS = "For the question of a flow, in the webhook of its deployment."
OF_ALL = {"kickoff_id": ID, "meta": {"order": 17}}


class _Body(BaseModel):
    kickoff_id: UUID
    meta: dict[str, Any] | None = Field(description="The `meta` of the kickoff.")
    truncated: bool | None = Field(
        None, description="True for a body that would be larger than 1 MiB: its large members are null."
    )
    status_url: str | None = Field(None, description="Of such a body: the address of the status, which has them.")


class TaskWebhookBody(_Body):
    description: str | None
    name: str | None
    expected_output: str | None
    summary: str | None
    agent: str | None
    output: Any
    output_json: Any


class StepWebhookBody(_Body):
    prompt: Any = Field(description="What the agent was asked.")
    thought: str | None
    tool: str | None = Field(description="Null: the agent has given its answer.")
    tool_input: Any
    result: Any = Field(description="What the tool returned, or the answer of the agent.")


class WebhookUsage(BaseModel):
    total_tokens: int
    prompt_tokens: int
    completion_tokens: int


class CrewWebhookBody(_Body):
    result: Any = Field(description="Null after a bad end.")
    result_json: Any
    token_usage: WebhookUsage
    status: StatusWord
    state: StateWord
    reason: str | None = Field(description="Why it ended without success.")
    error: str | None


class WebhookEvent(BaseModel):
    id: str
    execution_id: UUID = Field(description="The id of the kickoff.")
    timestamp: datetime
    type: str
    data: dict[str, Any]


class EventsWebhookBody(BaseModel):
    events: list[WebhookEvent]


class HumanInputWebhookBody(_Body):
    execution_id: UUID
    task_id: str | None
    task_output: Any = Field(description="The draft that the person is asked about.")
    human_input: dict[str, Any] = Field(description="The question, as in the event `human_input_requested`.")
    event: Literal["new_request"] | None = Field(None, description=OF_FLOWS)
    request: dict[str, Any] | None = Field(None, description=OF_FLOWS)
    deployment: dict[str, str] | None = Field(None, description=f"`id` and `name`. {OF_FLOWS}")
    callback_url: str | None = Field(
        None,
        description=f"Where the receiver answers without a token, until the question is answered or its time is over. "
        f"{OF_FLOWS} Null without the public address of the server.",
    )


BODIES: dict[str, tuple[str, type[BaseModel], dict[str, Any]]] = {
    "taskWebhookUrl": (
        "Called after each completed task.",
        TaskWebhookBody,
        {
            **OF_ALL,
            "description": "Write about tides.",
            "name": "write",
            "expected_output": "A paragraph.",
            "summary": "Write about tides...",
            "agent": "Writer",
            "output": "Tides rise and fall twice a day.",
            "output_json": None,
        },
    ),
    "stepWebhookUrl": (
        "Called after each tool call, and after the answer of an agent.",
        StepWebhookBody,
        {
            **OF_ALL,
            "prompt": "Write about tides.",
            "thought": "I need a tide table.",
            "tool": "tide_table",
            "tool_input": {"place": "Brest"},
            "result": "high 04:12, low 10:20",
        },
    ),
    "crewWebhookUrl": (
        "Called at every end of a kickoff: success, failure, stop, timeout, loss.",
        CrewWebhookBody,
        {
            **OF_ALL,
            "result": "Tides rise and fall twice a day.",
            "result_json": None,
            "token_usage": {"total_tokens": 120, "prompt_tokens": 100, "completion_tokens": 20},
            "status": "completed",
            "state": "SUCCESS",
            "reason": None,
            "error": None,
        },
    ),
    "webhooks": (
        "Called for events of a run, in batches of up to 100, or one by one with `realtime`.",
        EventsWebhookBody,
        {
            "events": [
                {
                    "id": f"{ID}-7",
                    "execution_id": ID,
                    "timestamp": "2026-01-15T09:30:00Z",
                    "type": "task_completed",
                    "data": {"task_id": "write"},
                }
            ]
        },
    ),
    "humanInputWebhook": (
        "Called when a person is asked. `humanInputWebhookUrl` is the same without authentication.",
        HumanInputWebhookBody,
        {
            **OF_ALL,
            "execution_id": ID,
            "task_id": "write",
            "task_output": "Tides rise and fall twice a day.",
            "human_input": {"task_id": "write"},
        },
    ),
}
"""The bodies by the members of a kickoff: when the webhook is called, the model, and an example."""
HEADERS = {
    "webhook-id": "The id of the delivery. It is the same in each attempt.",
    "webhook-timestamp": "The time of the attempt, in Unix seconds.",
    "webhook-signature": "Signatures as in Standard Webhooks, `v1,` and base64, separated by spaces.",
}
CALLBACK_ERRORS = ("400", "401", "403", "404", "409")
MODELS: tuple[type[BaseModel], ...] = (*(model for _, model, _ in BODIES.values()), CallbackRequest)
ANSWERS = {
    "2XX": "It is delivered.",
    "410": "The address is switched off.",
    "default": "It is sent again later, for three days.",
}


CALLBACKS: dict[str, Any] = {
    "answer": {
        "{$request.body#/callback_url}": {
            "post": {
                "operationId": "answerByCallback",
                "summary": "Answer the question of a flow",
                "tags": ["webhooks"],
                "security": [],
                "requestBody": {
                    "required": True,
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/CallbackRequest"}}},
                },
                "responses": {
                    "200": {
                        "description": "The answer counts.",
                        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/ResumeAnswer"}}},
                    },
                    **{status: {"$ref": f"#/components/responses/{status}"} for status in CALLBACK_ERRORS},
                },
            }
        }
    }
}


def webhooks_of_document() -> dict[str, Any]:
    """Returns the member `webhooks` of an OpenAPI document. Its schemas are those of `BODIES`."""
    return {name: {"post": _operation(name, *facts)} for name, facts in BODIES.items()}


def _operation(name: str, summary: str, model: type[BaseModel], example: dict[str, Any]) -> dict[str, Any]:
    schema = {"$ref": f"#/components/schemas/{model.__name__}"}
    callbacks = {"callbacks": CALLBACKS} if model is HumanInputWebhookBody else {}
    return {
        "operationId": f"{name}Called",
        "summary": summary,
        "tags": ["webhooks"],
        "security": [],
        "parameters": [
            {"name": header, "in": "header", "required": True, "schema": {"type": "string"}, "description": meaning}
            for header, meaning in HEADERS.items()
        ],
        "requestBody": {"required": True, "content": {"application/json": {"schema": schema, "example": example}}},
        "responses": {status: {"description": meaning} for status, meaning in ANSWERS.items()},
        **callbacks,
    }
