import json
import re
from pathlib import Path

from crewai.tools import BaseTool
from pydantic import BaseModel, Field

NOTES: dict[str, list[str]] = json.loads(Path(__file__).with_name("notes.json").read_text(encoding="utf-8"))


class Question(BaseModel):
    question: str = Field(description="What to look up, in a few words; it has to name its subject.")


class LookUpNotes(BaseTool):
    name: str = "look_up_notes"
    description: str = (
        "Looks a subject up in the notes and gives what they hold on it. Costs nothing, needs no network."
    )
    args_schema: type[BaseModel] = Question

    def _run(self, question: str) -> str:
        words = set(re.findall(r"\w+", question.lower()))
        found = [subject for subject in NOTES if words & {subject, subject.removesuffix("s")}]
        if not found:
            return f"The notes hold nothing on that. They cover {', '.join(NOTES)}."
        return "\n".join(f"{subject}: {fact}" for subject in found for fact in NOTES[subject])
