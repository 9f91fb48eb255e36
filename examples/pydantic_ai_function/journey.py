"""Agents of Pydantic AI as a service: one plans a journey, one looks into each stop, and one writes it up."""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from pydantic import BaseModel, Field
from pydantic_ai import Agent

MODEL = "openai-chat:gpt-4o-mini"


class Steps(Protocol):
    """What Windlass gives for the parameter `steps`."""

    async def arun(self, name: str, function: Callable[..., Any], /, *arguments: Any) -> Any: ...


class Plan(BaseModel):
    stops: list[str] = Field(min_length=2, max_length=4, description="Places, in the order of the journey.")


class Journey(BaseModel):
    stops: list[str]
    text: str


async def run(country: str, days: int = 7, *, steps: Steps) -> Journey:
    """Plans a journey.

    country: Where it goes.
    days: How long it is.
    """
    plan = await steps.arun("plan", planned, country, days)
    notes = await asyncio.gather(*(steps.arun("look into a stop", looked_into, stop) for stop in plan.stops))
    text = await steps.arun("write", written, plan, notes)
    return Journey(stops=plan.stops, text=text)


async def planned(country: str, days: int) -> Plan:
    planner = Agent(MODEL, output_type=Plan, instructions="You plan journeys by train.")
    return (await planner.run(f"Plan {days} days in {country}.")).output


async def looked_into(stop: str) -> str:
    guide = Agent(MODEL, instructions="You know what is worth a visit.")
    return (await guide.run(f"What is there to see in {stop}?")).output


async def written(plan: Plan, notes: list[str]) -> str:
    writer = Agent(MODEL, instructions="You write a page for travellers.")
    return (await writer.run("\n\n".join([f"A journey by {', '.join(plan.stops)}.", *notes]))).output
