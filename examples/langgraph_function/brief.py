"""A graph of LangGraph as a service: facts and doubts about a topic side by side, and a brief of both."""

from collections.abc import Callable
from typing import Any, Protocol, TypedDict

from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, StateGraph


class Steps(Protocol):
    """What Windlass gives for the parameter `steps`."""

    def step(self, function: Callable[..., Any], /) -> Callable[..., Any]: ...


class State(TypedDict, total=False):
    topic: str
    facts: str
    doubts: str
    brief: str


def run(topic: str, steps: Steps) -> dict[str, Any]:
    """Writes a brief.

    topic: What it is about.
    """
    graph = StateGraph(State)
    for node in facts, doubts, brief:
        graph.add_node(node.__name__, steps.step(node))
    graph.add_edge(START, "facts")
    graph.add_edge(START, "doubts")
    graph.add_edge(["facts", "doubts"], "brief")
    graph.add_edge("brief", END)
    return graph.compile().invoke({"topic": topic})


def facts(state: State) -> State:
    return {"facts": answer(f"List three facts about {state['topic']}.")}


def doubts(state: State) -> State:
    return {"doubts": answer(f"What is often said about {state['topic']} and is not true?")}


def brief(state: State) -> State:
    return {"brief": answer(f"Write a brief of these.\n\n{state['facts']}\n\n{state['doubts']}")}


def answer(question: str) -> str:
    return str(ChatOpenAI(model="gpt-4o-mini").invoke(question).text)  # a plain text is kept, its class of text is not
