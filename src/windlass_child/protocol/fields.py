"""The types of the fields of messages, and their bounds."""

from __future__ import annotations

from typing import Annotated, TypedDict

from windlass_child.protocol.validation import Between, Encoded, PrintableAscii

Pid = Annotated[int, range(2, 1 << 31)]
"""A process id from 2: a signal to 0 or 1 could reach many processes."""

Position = Annotated[int, range(1 << 31)]
Number = Annotated[int, range(1, 1 << 31)]
"""The number of an entry in a kickoff's journal, from 1."""

Time = Annotated[float, Between(-62_135_596_800, 253_402_300_799)]
"""Unix time in seconds, from the year 1 to the year 9999."""

MB = 1 << 20
DEEPEST = 400
"""The most levels of the JSON of an event."""
LARGEST_EVENT = 256 * 1024
"""The most bytes of JSON of an event's payload. The child cuts a larger one."""
LARGEST_OUTPUT = 96 * MB
"""The most bytes of JSON of a task's output."""
LARGEST_RESULT = 192 * MB
"""The most bytes of JSON of a result. Text of 64 MB in UTF-8 takes at most three times as much."""
LARGEST_QUESTION = 256 * 1024
"""The most bytes of JSON of the question in an `Asked`, and of its choices."""
LARGEST_ENTRY = 64 * MB
"""The most bytes of an entry of the journal."""

LONGEST_NAME = 1000
"""Characters of a task's name and of an agent's role."""

Text = str | Encoded
"""The type of a large text field in the server. The server stores its JSON as it arrived, like that of payloads."""
Key = Annotated[str, PrintableAscii(1000)]
MOST_TOKENS = (1 << 48) - 1
Count = Annotated[int, range(MOST_TOKENS + 1)]
Stage = Annotated[str, frozenset({"load", "inputs", "run"})]
FailureReason = Annotated[str, frozenset({"error", "limit", "secrets"})]
SecretInPrompt = Annotated[str, frozenset({"warn", "refuse"})]
EndOfTask = Annotated[str, frozenset({"completed", "failed", "skipped"})]


class KnownTask(TypedDict):
    key: Key
    name: str | None
    agent: str | None
