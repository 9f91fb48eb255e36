"""The fields of the settings of a crew: their words, and how a text in a form becomes a value."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from windlass.dashboard.templating import NONE

if TYPE_CHECKING:
    from collections.abc import Mapping

Kind = Literal["count", "number", "seconds", "size", "days", "choice", "several", "lines"]
UNITS = {"seconds": "seconds", "days": "days", "size": "such as 512 MB"}
SIZES = ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB"))


@dataclass(frozen=True, slots=True)
class SettingField:
    """A setting. `name` is that of its member, with a dot within a table. `options` are pairs of value and words."""

    name: str
    label: str
    help: str
    kind: Kind = "count"
    options: tuple[tuple[str, str], ...] = ()

    @property
    def unit(self) -> str:
        return UNITS.get(self.kind, "")

    def of(self, settings: Mapping[str, Any]) -> Any:
        """Returns the value of this setting, None if there is none."""
        found: Any = settings
        for part in self.name.split("."):
            found = found.get(part) if found else None
        return found

    def value(self, text: str) -> Any:
        """Returns the value that the text of the form stands for. A text that is no number stays as it is: the check of
        the settings names the reason.
        """
        if self.kind == "lines":
            return text.split()
        if self.kind in {"count", "number", "seconds", "days"}:
            for number in (int, float):
                with suppress(ValueError):
                    return number(text.replace(",", ""))
        return text

    def text(self, value: Any) -> str:
        """Returns the value as the form has it: `value` reads it."""
        if value is None:
            return ""
        if self.kind == "lines":
            return "\n".join(value)
        if self.kind == "days" and value == 0:
            return "forever"
        if self.kind == "size":
            return next((f"{value // size} {unit}" for size, unit in SIZES if value and value % size == 0), str(value))
        return f"{value:g}" if isinstance(value, float) else str(value)

    def words(self, value: Any) -> str:
        """Returns the value as a person reads it."""
        if value is None or value == []:
            return "none" if self.kind != "choice" else NONE
        if self.kind in {"several", "lines"}:
            return ", ".join(str(one) for one in value)
        text = self.text(value)
        if self.kind == "days" and value:
            return f"{text} {'day' if value == 1 else 'days'}"
        return f"{text} s" if self.kind == "seconds" else text


@dataclass(frozen=True, slots=True)
class SettingGroup:
    title: str
    text: str
    fields: tuple[SettingField, ...]


GROUPS = (
    SettingGroup(
        "Queue",
        "How many kickoffs run and wait, and which of them is next.",
        (
            SettingField("concurrency", "Kickoffs at once", "The most that run at the same time, over all workers."),
            SettingField("weight", "Weight", "Its share of the slots, against that of other crews.", "number"),
            SettingField("max_waiting", "Longest queue", "The most kickoffs that wait. Further ones get 429."),
            SettingField(
                "concurrency_strategy",
                "Same concurrency key",
                "What a kickoff does while another one with its key has not ended.",
                "choice",
                (
                    ("enqueue", "enqueue: wait for its turn"),
                    ("reject", "reject: refuse it with 409"),
                    ("cancel_running", "cancel_running: replace the other one"),
                ),
            ),
        ),
    ),
    SettingGroup(
        "Limits of a run",
        "What ends a run that loops, leaks or floods. A kickoff can ask for less, not for more.",
        (
            SettingField("limits.timeout", "Timeout", "From the first start to the end, with all attempts.", "seconds"),
            SettingField("limits.memory_limit", "Memory", "Of all processes of the run together.", "size"),
            SettingField("limits.process_limit", "Processes", "Of the run, with all descendants."),
            SettingField("limits.token_limit", "Tokens", "Of all model calls of all attempts together."),
            SettingField("limits.model_call_limit", "Model calls", "Of all attempts together."),
            SettingField("limits.disk_limit", "Disk space", "Of the files in the folder of the run.", "size"),
            SettingField("limits.file_limit", "Files", "Files and folders in the folder of the run."),
            SettingField("limits.result_limit", "Result", "The largest result. A larger one fails the run.", "size"),
            SettingField("limits.output_limit", "Output", "Printed output that is kept. The run continues.", "size"),
            SettingField("limits.event_limit", "Events", "Events that are kept. The run continues."),
            SettingField("limits.stored_limit", "Stored data", "What a run adds to the database.", "size"),
            SettingField(
                "limits.stall_after",
                "Stalled after",
                "Time without an event or output after which the kickoff gets a warning.",
                "seconds",
            ),
        ),
    ),
    SettingGroup(
        "Retries",
        "When a failed kickoff runs again. It continues after its last finished task.",
        (
            SettingField("retries.attempts", "Attempts", "The most, with the first one. 1: no retry."),
            SettingField("retries.backoff", "First pause", "Before the second attempt. It doubles then.", "seconds"),
            SettingField("retries.longest_backoff", "Longest pause", "Between two attempts.", "seconds"),
            SettingField(
                "retries.reasons",
                "Failures that are tried again",
                "A lost process is not a failure: the kickoff runs again in any case.",
                "several",
                (
                    ("error", "error: the crew raised an error"),
                    ("crashed", "crashed: the process ended without a result"),
                    ("limit", "limit: the run reached a limit"),
                    ("secrets", "secrets: a secret could not be read"),
                ),
            ),
        ),
    ),
    SettingGroup(
        "Retention",
        "How long data of kickoffs is kept after they have ended. 0 or `forever` keeps it.",
        (
            SettingField("retention.kickoffs", "Kickoffs", "With inputs, results and files.", "days"),
            SettingField("retention.events", "Events", "The course of each run, and its printed lines.", "days"),
            SettingField("retention.journal", "Journal", "What an attempt needs to continue another.", "days"),
        ),
    ),
    SettingGroup(
        "Runs and clients",
        "How a run starts, and what clients of the crew may do.",
        (
            SettingField(
                "preload",
                "Import before the fork",
                "`project` starts runs quicker. The modules of the project must bear a fork.",
                "choice",
                (("framework", "framework"), ("project", "framework and project")),
            ),
            SettingField(
                "reuse",
                "Kickoffs of a process",
                "1: a process for each kickoff. More of them start quicker, and share the variables of modules.",
            ),
            SettingField(
                "profile",
                "Form of the result",
                "In the statuses that clients read. A token can have a form of its own.",
                "choice",
                (("documented", "documented: as CrewAI's guide shows it"), ("live", "live: with all members")),
            ),
            SettingField(
                "secret_in_prompt",
                "Secret in a prompt",
                "The effect of the value of a secret variable in a prompt.",
                "choice",
                (("warn", "warn: a warning on the kickoff"), ("refuse", "refuse: the end of the run")),
            ),
            SettingField("rate_limit", "Rate limit", "Requests a second of each token.", "number"),
            SettingField(
                "cors_origins",
                "Web pages that may call it",
                "Origins, one on each line, such as https://app.example.com. `*` stands for all.",
                "lines",
            ),
        ),
    ),
)
FIELDS = tuple(field for group in GROUPS for field in group.fields)
