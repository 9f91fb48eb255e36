"""The limits of a run. A project, a deployment and the request of a kickoff use the same names."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from windlass.kickoffs.declared_settings import COUNT, SECONDS, SIZE, SettingTable, setting

WHERE = "under [tool.windlass.limits] in pyproject.toml, and in the kickoff's `limits` if it set one"
"""The place where a person raises a limit. Each error about a limit ends with this text."""


@dataclass(frozen=True, slots=True)
class Limits(SettingTable):
    """Holds the limits of a run. None stands for no limit; in an override, None stands for a limit that is not set.

    Sizes are in bytes, times in seconds. `memory_limit` counts the proportional set size (PSS), `disk_limit` blocks.
    """

    noun: ClassVar[str] = "limit"

    timeout: float | None = setting(
        None, SECONDS, "Timeout", "Time from the first start to the end, with all attempts."
    )
    memory_limit: int | None = setting(None, SIZE, "Memory", "Memory of all processes of the run together.")
    process_limit: int | None = setting(None, COUNT, "Processes", "Processes of the run, with all descendants.")
    output_limit: int | None = setting(
        None, SIZE, "Output", "Printed output that is kept. Beyond it, the run continues."
    )
    result_limit: int | None = setting(None, SIZE, "Result", "The largest result, as JSON. A larger one fails the run.")
    disk_limit: int | None = setting(None, SIZE, "Disk space", "Space of the files in the folder of the run.")
    file_limit: int | None = setting(None, COUNT, "Files", "Files and folders in the folder of the run.")
    event_limit: int | None = setting(None, COUNT, "Events", "Events that are kept. Beyond it, the run continues.")
    stored_limit: int | None = setting(None, SIZE, "Stored data", "What a run adds to the database.")
    token_limit: int | None = setting(None, COUNT, "Tokens", "Tokens of all model calls of all attempts together.")
    model_call_limit: int | None = setting(None, COUNT, "Model calls", "Model calls of all attempts together.")
    stall_after: float | None = setting(
        None, SECONDS, "Stalled after", "Time without an event or output after which the kickoff gets a warning."
    )

    def lowered_by(self, other: Limits) -> Limits:
        """Returns the smaller of each two limits. A client may lower the limits of the deployment for its kickoff."""
        mine = self.to_json()
        smaller = {name: min(mine.get(name, value), value) for name, value in other.to_json().items()}
        return replace(self, **smaller)
