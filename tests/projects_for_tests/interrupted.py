"""Kickoffs whose process is killed and that go on in another attempt, from what the worker kept of the journal."""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import textwrap
from collections import Counter
from typing import TYPE_CHECKING, Any

from projects_for_tests.crews import PRELUDE, crew_project
from projects_for_tests.making import function_project
from windlass_child.protocol.messages import (
    Answered,
    Asked,
    Event,
    Failed,
    JournalAppend,
    JournalReplay,
    Project,
    Succeeded,
    TaskEnded,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from projects_for_tests.driver import DrivenChild, DrivenZygote

MODEL = '''
import asyncio, json, re, time


class Counted(BaseLLM):
    """Says which step called it, as the step's text names it in brackets, and in which attempt; and writes it down."""

    def call(self, messages, *arguments, **named):
        step = step_of(messages)
        if os.environ.get("STOP_AT") == step:
            os.write(1, b"stopped\\n")
            time.sleep(600)
        return answer_to(step)

    async def acall(self, messages, *arguments, **named):
        step = step_of(messages)
        if os.environ.get("STOP_AT") == step:
            os.write(1, b"stopped\\n")
            await asyncio.sleep(600)
        return answer_to(step)

    def supports_function_calling(self):
        return False

    def get_context_window_size(self):
        return 8192


def step_of(messages):
    text = messages if isinstance(messages, str) else messages[-1]["content"]
    return re.findall(r"\\[(\\w+)\\]", text)[-1]


def answer_to(step):
    note("calls", step)
    answers = json.loads(os.environ["ANSWERS"])
    return "Thought: I know\\nFinal Answer: " + answers.get(step, f"{step} of attempt {os.environ['ATTEMPT']}")


def note(kind, text):
    with open(os.environ["NOTES"], "a") as file:
        file.write(f"{kind} {text}\\n")


def one(**fields):
    return worker(llm=Counted(model="counted"), **fields)


def step(name, agent, **fields):
    return Task(**{"name": name, "description": f"Do [{name}]", "expected_output": "Words", "agent": agent} | fields)
'''


def kickoff_of_crew(zygote: DrivenZygote, folder: Path, code: str, **given: Any) -> Kickoff:
    project = Project("crew", str(crew_project(folder / "project", MODEL + textwrap.dedent(code))), "work.crew")
    return Kickoff(zygote, project, folder, **given)


def kickoff_of_function(zygote: DrivenZygote, folder: Path, code: str, **given: Any) -> Kickoff:
    code = PRELUDE + MODEL + textwrap.dedent(code)
    project = Project("function", str(function_project(folder / "project", code)), "work:run")
    return Kickoff(zygote, project, folder, **given)


class Kickoff:
    """One kickoff, in as many attempts as it takes."""

    def __init__(self, zygote: DrivenZygote, project: Project, folder: Path, **given: Any) -> None:
        self._zygote = zygote
        self._project = project
        self._folder = folder
        self._given = given
        self.attempts: list[DrivenChild] = []
        self._lost: set[int] = set()
        self._answers: list[Answered] = []
        self._notes = folder / "notes"
        self.outputs: dict[int, str] = {}

    def attempt(
        self,
        stop_at: str = "",
        answers: dict[str, str] | None = None,
        commits_until: float = math.inf,
        secrets: Mapping[str, str] | None = None,
    ) -> DrivenChild:
        """Starts one, with the journal of those before. Its model gives `answers` to the steps in it, and none to the
        step `stop_at`. `secrets` are secret variables.
        """
        child, number = self._zygote.fork(), str(len(self.attempts) + 1)
        child.commits_until = commits_until
        given = {"NOTES": str(self._notes), "ATTEMPT": number, "STOP_AT": stop_at, "ANSWERS": json.dumps(answers or {})}
        folder, journal = self._folder / f"attempt {number}", [*self.journal(), *self._answers]
        secrets = secrets or {}
        child.run(
            self._project, folder, journal=journal, environment={**given, **secrets}, secrets=[*secrets], **self._given
        )
        self.attempts.append(child)
        return child

    def interrupted(
        self,
        stop_at: str,
        journaled: int = 0,
        answers: dict[str, str] | None = None,
        secrets: Mapping[str, str] | None = None,
    ) -> DrivenChild:
        """An attempt that is killed when its model was asked for this step, and so many entries are in the journal."""
        child = self.attempt(stop_at, answers, secrets=secrets)
        self._zygote.until(lambda: "stopped" in child.printed and len(child.talk.of(JournalAppend)) >= journaled)
        return self.kill(child)

    def interrupted_in_writing(self, number: int, *, lost: bool) -> DrivenChild:
        """An attempt that is killed when it waits to hear that this entry is written; which is not, if it is `lost`."""
        child = self.attempt(commits_until=number)
        self._zygote.until(lambda: any(entry.number == number for entry in child.talk.of(JournalAppend)))
        if lost:
            self._lost.add(number)
        return self.kill(child)

    def kill(self, child: DrivenChild) -> DrivenChild:
        with contextlib.suppress(ProcessLookupError):  # it may have ended: it does not wait for its final entry
            os.kill(child.pid, signal.SIGKILL)
        child.exited()
        return child

    def journal(self) -> list[JournalReplay]:
        """As the worker kept it: outputs that are in task records come from there."""
        stored = {end.position: end.output for child in self.attempts for end in child.talk.of(TaskEnded)}
        outputs = stored | self.outputs
        sent = [message for child in self.attempts for message in child.talk.messages]
        entries = [message for message in sent if isinstance(message, JournalAppend | Asked)]
        return [
            JournalReplay(one.number, one.key, one.record, output_of(one, outputs))
            for one in entries
            if one.number not in self._lost
        ]

    def asked(self, child: DrivenChild) -> Asked:
        """The question for which the attempt has ended: its last message."""
        assert child.exited() == 0, child.printed
        last = child.talk.messages[-1]
        assert isinstance(last, Asked), last
        assert not last.waits
        return last

    def paused(self, **given: Any) -> Asked:
        """The question of a further attempt."""
        return self.asked(self.attempt(**given))

    def asked_alive(self, child: DrivenChild, number: int = 1) -> Asked:
        """The question that the process waits for, after so many."""
        asked = self._zygote.until(lambda: child.talk.of(Asked)[number - 1 :])[0]
        assert asked.waits
        return asked

    def next_of(self, child: DrivenChild, number: int) -> Asked | Succeeded | Failed:
        """The question of the attempt after `number` others, or its end."""

        def found() -> list[Asked | Succeeded | Failed]:
            ends = [one for one in child.talk.messages if isinstance(one, Succeeded | Failed)]
            return [*child.talk.of(Asked)[number:], *ends]

        return self._zygote.until(found)[0]

    def answer(self, asked: Asked, feedback: str = "", *, approved: bool | None = None) -> None:
        """Answers a question: with an approval if there are no words."""
        answer = Answered(asked.number, not feedback if approved is None else approved, feedback)
        self._answers.append(answer)
        if asked.waits:
            self.attempts[-1].talk.send(answer)

    def noted(self, kind: str) -> list[str]:
        """What the code of the project has written down, in all attempts."""
        lines = self._notes.read_text("utf-8").splitlines() if self._notes.exists() else []
        return [line.partition(" ")[2] for line in lines if line.startswith(f"{kind} ")]

    @property
    def calls(self) -> Counter[str]:
        """How often the model has answered each step."""
        return Counter(self.noted("calls"))


def output_of(entry: JournalAppend | Asked, outputs: Mapping[int, str | None]) -> str | None:
    return outputs[entry.position or 0] if isinstance(entry, JournalAppend) and entry.output_elsewhere else None


def restored_tasks(child: DrivenChild) -> list[str]:
    """Their names, as the event that tells of them has it."""
    told = [event.payload["tasks"] for event in child.talk.of(Event) if event.type == "journal_restored"]
    return [name for names in told for name in names]
