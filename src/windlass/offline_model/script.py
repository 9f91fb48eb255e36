"""A script for the offline model: a file of rules that maps prompts to answers (docs/how-to/offline-model.md)."""

from __future__ import annotations

import json
import os
import stat
import sys
import tomllib
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from windlass.errors import WindlassError
from windlass.offline_model.answers import (
    Answer,
    ChatRequest,
    as_final_answer,
    prompt_text,
    summary,
    text_answer,
    tool_answer,
)
from windlass.offline_model.rules import Call, Rule

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pydantic_core import ErrorDetails

    from windlass.offline_model.faults import Seconds

LARGEST = 16 << 20
"""The number of characters of a script that are read."""

_HINT = "docs/how-to/offline-model.md shows how a script is written."


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    strict: bool = False
    rules: list[Rule] = Field(min_length=1)


@dataclass(frozen=True, slots=True)
class Reply:
    """The reply of a script. Without an answer and an error, the model answers as it does without a script."""

    answer: Answer | None = None
    error: int | None = None
    latency: Seconds | None = None


class UnansweredError(Exception):
    """No rule of a strict script fits. The message has the prompt."""


def on_standard_error(text: str) -> None:
    with suppress(OSError):
        sys.stderr.write(f"{text}\n")


class Script:
    """The rules, and how often each was used. With a source, each reply follows the current rules of the source."""

    def __init__(self, rules: Sequence[Rule], *, strict: bool = False, source: Source | None = None) -> None:
        self.rules = tuple(rules)
        self.strict = strict
        self._source = source
        self._used: Counter[int] = Counter()

    @classmethod
    def read(cls, file: Path, *, strict: bool = False, notify: Callable[[str], None] = on_standard_error) -> Script:
        """Reads TOML, or JSON if the file's name ends in `.json`. Raises WindlassError with all errors of the file.

        When the file changes, the script is read again. Then `notify` is called with a message, or with the errors.
        """
        source = Source(file, strict, notify)
        found = source.read()
        return cls(found.rules, strict=found.strict, source=source)

    def reply(self, request: ChatRequest) -> Reply:
        """Returns the reply of the first rule that fits and can be used, and counts the use."""
        if self._source and (new := self._source.news()):
            self.rules, self.strict, self._used = tuple(new.rules), new.strict, Counter()
        prompt = prompt_text(request)
        passed: list[str] = []
        for number, rule in enumerate(self.rules, 1):
            if not rule.fits(request, prompt):
                continue
            if not (why := self._why_not(number, rule, request)):
                self._used[number] += 1
                return Reply(_answer(rule, request), rule.error or None, rule.latency)
            passed.append(f"Rule {number} fits, but {why}.")
        if self.strict:
            raise UnansweredError(_unanswered(request, passed))
        return Reply()

    def _why_not(self, number: int, rule: Rule, request: ChatRequest) -> str:
        if rule.times and self._used[number] >= rule.times:
            return "its times are used up"
        return rule.why_no_calls(request)


class Source:
    """The file of a script, as it was at the last look. With `strict`, the script is strict even if the file is not."""

    def __init__(self, file: Path, strict: bool, notify: Callable[[str], None]) -> None:
        self._file = file
        self._strict = strict
        self._notify = notify
        self._seen: tuple[int, ...] | None = None

    def read(self) -> _File:
        """Reads and checks the file. Raises WindlassError."""
        self._seen = _look(self._file)
        content = _content(self._file)
        try:
            found = _File.model_validate(content)
        except ValidationError as error:
            wrong = "; ".join(_in_words(one) for one in error.errors(include_url=False))
            raise WindlassError(f"The script {self._file} can't be used: {wrong}.", _HINT) from None
        return found.model_copy(update={"strict": self._strict or found.strict})

    def news(self) -> _File | None:
        """Returns the content of the file if it has changed and is valid."""
        if _look(self._file) == self._seen:
            return None
        try:
            found = self.read()
        except WindlassError as error:
            self._notify(f"warning: the earlier rules of the script apply until its error is corrected: {error}")
            return None
        self._notify(f"the script {self._file} has changed: its new rules apply from now on")
        return found


def _look(file: Path) -> tuple[int, ...] | None:
    """Returns a value that changes with the file. It never changes for a pipe, which can be read only once."""
    try:
        found = file.stat()
    except OSError:
        return None
    return (found.st_ino, found.st_mtime_ns, found.st_size) if stat.S_ISREG(found.st_mode) else ()


def _answer(rule: Rule, request: ChatRequest) -> Answer | None:
    if calls := rule.made_calls(request):
        return tool_answer(request, *calls)
    if "json" in rule.named:
        return text_answer(request, as_final_answer(request, rule.json_text))
    return text_answer(request, as_final_answer(request, rule.text)) if "text" in rule.named else None


def _unanswered(request: ChatRequest, passed: list[str]) -> str:
    asked = " / ".join(summary(request))
    return " ".join([f"No rule of the script answers this prompt, and it is strict. {asked}", *passed])


def _content(file: Path) -> Any:
    kind = "JSON" if file.suffix.lower() == ".json" else "TOML"
    try:
        text = _text_of(file)
        return _from_json(text) if kind == "JSON" else tomllib.loads(text)
    except OSError as error:
        raise WindlassError(f"The script {file} can't be read: {error.strerror}.", _HINT) from None
    except (ValueError, RecursionError) as error:
        why = str(error) or "it is nested too deeply"
        raise WindlassError(f"The script {file} is not {kind}: {why}.", _HINT) from None


def _text_of(file: Path) -> str:
    """Returns the file's text. Does not wait if a pipe has replaced a regular file: this process answers requests."""
    if not stat.S_ISREG(file.stat().st_mode):
        return file.read_text("utf-8-sig")
    descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, encoding="utf-8-sig") as opened:
        return opened.read(LARGEST)


def _from_json(text: str) -> Any:
    """Parses JSON. Refuses lone surrogates, which no answer can contain."""
    content = json.loads(text)
    json.dumps(content, ensure_ascii=False).encode()
    return content


def _in_words(error: ErrorDetails) -> str:
    place, keys = _place(error["loc"])
    what = error["msg"].removeprefix("Value error, ")
    if error["type"] == "extra_forbidden":
        return f"{place} has the key {keys[-1]!r}, which is unknown; the keys are {', '.join(_known(error['loc']))}"
    if error["type"] == "missing":
        return f"{place} has no {keys[-1]}: add one{' with [[rules]]' if keys[-1] == 'rules' else ''}"
    return f"{place}{'.'.join(['', *keys]) if keys else ''} {what[0].lower()}{what[1:]}"


def _place(location: tuple[int | str, ...]) -> tuple[str, list[str]]:
    """Returns the place in words, and the keys below it. Rules are counted from 1."""
    if len(location) > 1 and location[0] == "rules":
        return f"rule {int(location[1]) + 1}", [str(step) for step in location[2:]]
    return "the file", [str(step) for step in location]


def _known(location: tuple[int | str, ...]) -> list[str]:
    table: type[BaseModel] = Call if "calls" in location else Rule if "rules" in location else _File
    return [field.alias or name for name, field in table.model_fields.items()]
