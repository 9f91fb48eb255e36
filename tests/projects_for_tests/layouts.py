"""A small project for each layout that Windlass recognises without a change to the project."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field
from typing import Any

from projects_for_tests.crews import PRELUDE

CREW_BASE = """
@CrewBase
class Work:
    @agent
    def one(self):
        return worker()

    @task
    def say(self):
        return Task(description="Say {topic}", expected_output="Words", agent=self.one())

    @crew
    def crew(self):
        return Crew(agents=self.agents, tasks=self.tasks)
"""
MAKE = """
def make(topic="{topic}"):
    one = worker()
    return Crew(agents=[one], tasks=[Task(name="say", description=f"Say {topic}", expected_output="W", agent=one)])
"""
FLOW = """
from crewai.flow.flow import Flow, listen, start
from pydantic import BaseModel


class State(BaseModel):
    topic: str = "tea"


class Talk(Flow[State]):
    _skip_auto_memory = True
    @start()
    def say(self):
        return "said"
"""
CONSTRUCTOR = """
    def __init__(self, word):
        super().__init__()
        self.word = word
"""
MAIN_OF_CREW = """
from {package}.crew import Work


def run():
    Work().crew().kickoff(inputs={{"topic": "tea"}})
"""
MAIN_OF_FLOW = "\n\ndef kickoff():\n    Talk().kickoff()\n\n\ndef plot():\n    Talk().plot()\n"


def named(name: str, *lines: str) -> str:
    return "\n".join([f'[project]\nname = "{name}"\nversion = "1"', *lines]) + "\n"


def scripts(**commands: str) -> str:
    return "[project.scripts]\n" + "\n".join(f'{name} = "{target}"' for name, target in commands.items())


def poetry(name: str, **commands: str) -> str:
    return f'[tool.poetry]\nname = "{name}"\n' + scripts(**commands).replace("[project.", "[tool.poetry.")


@dataclass(frozen=True)
class Layout:
    """`files` are the project. `named` is the path in it, or path:object, that a person names."""

    kind: str
    entrypoint: str
    files: dict[str, str]
    named: str = ""
    tasks: tuple[str, ...] = ("say",)
    inputs: dict[str, Any] = field(default_factory=lambda: {"topic": "tea"})


def crew_files(pyproject: str, package: str, folder: str) -> dict[str, str]:
    return {
        "pyproject.toml": pyproject,
        f"{folder}{package}/__init__.py": "",
        f"{folder}{package}/crew.py": PRELUDE + CREW_BASE,
        f"{folder}{package}/main.py": MAIN_OF_CREW.format(package=package),
    }


def flow_files(pyproject: str, package: str, module: str = "main") -> dict[str, str]:
    """A flow with a crew in a sub folder, as `crewai create flow` writes it."""
    return {
        "pyproject.toml": pyproject,
        f"src/{package}/__init__.py": "",
        f"src/{package}/{module}.py": PRELUDE + FLOW + MAIN_OF_FLOW,
        f"src/{package}/crews/speech/speech.py": PRELUDE + CREW_BASE,
    }


KICKED_OFF = PRELUDE + MAKE + '\ncrew = make()\nresult = crew.kickoff(inputs={"topic": "tea"})\nprint(result)\n'

LAYOUTS = {
    "a type and a package in src": Layout(
        "crew", "talk.crew", crew_files(named("talk", '[tool.crewai]\ntype = "crew"'), "talk", "src/")
    ),
    "run_crew without a type": Layout(
        "crew", "talk.crew", crew_files(named("other", scripts(run_crew="talk.main:run")), "talk", "src/")
    ),
    "a poetry project with a command of its name": Layout(
        "crew", "talk.crew", crew_files(poetry("talk", talk="talk.main:run"), "talk", "src/")
    ),
    "a package in a folder of its name": Layout(
        "crew", "talk.crew", crew_files(named("talk", scripts(run="talk.main:run")), "talk", "")
    ),
    "a flat crew with requirements": Layout(
        "crew", "crew", {"requirements.txt": "crewai\n", "crew.py": PRELUDE + CREW_BASE}
    ),
    "a crew method of another name": Layout(
        "crew", "team", {"team.py": PRELUDE + CREW_BASE.replace("def crew(self", "def assemble(self")}
    ),
    "a class without CrewBase": Layout(
        "crew",
        "main:Team",
        {"main.py": PRELUDE + MAKE + "\n\nclass Team:\n    def crew(self) -> Crew:\n        return make()\n"},
    ),
    "a crew at the level of the module": Layout(
        "crew",
        "main:team",
        {
            "main.py": PRELUDE
            + 'one = worker()\nsay = Task(name="say", description="Say {topic}", expected_output="W", agent=one)\n'
            + "team = Crew(agents=[one], tasks=[say])\n"
        },
    ),
    "a function that returns a crew": Layout(
        "crew", "main:build_crew", {"main.py": PRELUDE + MAKE.replace("def make", "def build_crew")}
    ),
    "an option that names a function which returns a crew": Layout(
        "crew",
        "app:crew",
        {
            "pyproject.toml": named("talk", '[tool.windlass]\nentrypoint = "app:crew"'),
            "app.py": PRELUDE + MAKE + "\n\ndef crew():\n    made = make()\n    return made\n",
        },
    ),
    "an async function that returns a crew": Layout(
        "crew",
        "app:crew",
        {
            "pyproject.toml": named("talk", '[tool.windlass]\nentrypoint = "app:crew"'),
            "app.py": PRELUDE + MAKE + "\n\nasync def crew() -> Crew:\n    return make()\n",
        },
    ),
    "an option that names a function which returns a flow": Layout(
        "flow",
        "app:flow",
        {
            "pyproject.toml": named("talk", '[tool.windlass]\nentrypoint = "app:flow"'),
            "app.py": PRELUDE + FLOW + CONSTRUCTOR + '\n\ndef flow():\n    return Talk("said")\n',
        },
    ),
    "a function that runs crews": Layout(
        "function",
        "main:main",
        {"main.py": PRELUDE + MAKE + "\n\ndef main(topic: str):\n    return make(topic).kickoff().raw\n"},
        tasks=("main",),
    ),
    "a script with a guard": Layout(
        "crew",
        "parts.team:Work",
        {
            "parts/team.py": PRELUDE + CREW_BASE + CREW_BASE.replace("Work", "Rest"),
            "main.py": 'from parts.team import Work\n\nif __name__ == "__main__":\n    Work().crew().kickoff()\n',
        },
    ),
    "a script without a guard": Layout("crew", "script:make", {"script.py": KICKED_OFF}),
    "modules beside a script": Layout(
        "crew",
        "talk.crew",
        {
            "pyproject.toml": named("talk", scripts(talk="talk.main:run")),
            "src/talk/crew.py": PRELUDE + "from tools.said import TOPIC\n" + CREW_BASE,
            "src/talk/tools/said.py": 'TOPIC = "tea"\n',
            "src/talk/main.py": MAIN_OF_CREW.format(package="talk").replace("talk.crew", "crew"),
        },
    ),
    "a file on the command line": Layout(
        "crew", "two:Work", {"one.py": PRELUDE + CREW_BASE, "two.py": PRELUDE + CREW_BASE}, named="two.py"
    ),
    "an object on the command line": Layout(
        "crew",
        "all:Rest",
        {"all.py": PRELUDE + CREW_BASE + CREW_BASE.replace("Work", "Rest")},
        named="all.py:Rest",
    ),
    "a flow with a type": Layout(
        "flow", "talk.main", flow_files(named("talk", '[tool.crewai]\ntype = "flow"'), "talk")
    ),
    "a flow with the commands kickoff and plot": Layout(
        "flow",
        "talk.main",
        flow_files(named("talk", scripts(kickoff="talk.main:kickoff", plot="talk.main:plot")), "talk"),
    ),
    "a flow of poetry with run_flow": Layout(
        "flow", "talk.main", flow_files(poetry("talk", run_flow="talk.main:kickoff"), "talk")
    ),
    "a flow in flow.py": Layout("flow", "talk.flow", flow_files(named("talk"), "talk", "flow")),
    "a flow with the command run_crew": Layout(
        "flow", "talk.main", flow_files(named("talk", scripts(run_crew="talk.main:kickoff")), "talk")
    ),
    "a flow at the level of the module": Layout(
        "flow", "main:flow", {"main.py": PRELUDE + FLOW + CONSTRUCTOR + '\n\nflow = Talk("said")\n'}
    ),
    "a flow script without a guard": Layout("flow", "main", {"main.py": PRELUDE + FLOW + "\nTalk().kickoff()\n"}),
}


def files_of(layout: Layout) -> dict[str, str]:
    return {name: textwrap.dedent(text) for name, text in layout.files.items()}
