"""A file of rules that says what the offline model answers to which prompt (docs/offline-model.md)."""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from windlass.embedded.offline_answers import Answer, ChatRequest, calling, heard, in_its_form, saying, summary
from windlass.embedded.offline_rules import Call, Rule
from windlass.errors import WindlassError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pydantic_core import ErrorDetails

    from windlass.embedded.offline_faults import Seconds

_HINT = "docs/offline-model.md shows how a script is written."


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    strict: bool = False
    rules: list[Rule] = Field(min_length=1)


@dataclass(frozen=True, slots=True)
class Reply:
    """Neither an answer nor an error: it is answered as without a script."""

    answer: Answer | None = None
    error: int | None = None
    latency: Seconds | None = None


class UnansweredError(Exception):
    """No rule of a strict script fits; says which prompt that was."""


class Script:
    """The rules, and how often each was used."""

    def __init__(self, rules: Sequence[Rule], *, strict: bool = False) -> None:
        self.rules = tuple(rules)
        self.strict = strict
        self._used: Counter[int] = Counter()

    @classmethod
    def read(cls, file: Path, *, strict: bool = False) -> Script:
        """TOML, or JSON if the file's name says so. Raises WindlassError with all that is wrong with it."""
        content = _content(file)
        try:
            read = _File.model_validate(content)
        except ValidationError as error:
            found = "; ".join(_in_words(one) for one in error.errors(include_url=False))
            raise WindlassError(f"The script {file} can't be used: {found}.", _HINT) from None
        return cls(read.rules, strict=strict or read.strict)

    def reply(self, request: ChatRequest) -> Reply:
        """Of the first rule that fits and can be used, which counts as used then."""
        words = heard(request)
        passed: list[str] = []
        for number, rule in enumerate(self.rules, 1):
            if not rule.fits(request, words):
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


def _answer(rule: Rule, request: ChatRequest) -> Answer | None:
    if calls := rule.made_calls(request):
        return calling(request, *calls)
    if "json" in rule.named:
        return saying(request, in_its_form(request, rule.json_text))
    return saying(request, in_its_form(request, rule.text)) if "text" in rule.named else None


def _unanswered(request: ChatRequest, passed: list[str]) -> str:
    asked = " / ".join(summary(request))
    return " ".join([f"No rule of the script answers this prompt, and it is strict. {asked}", *passed])


def _content(file: Path) -> Any:
    kind = "JSON" if file.suffix.lower() == ".json" else "TOML"
    try:
        text = file.read_text("utf-8")
        return _from_json(text) if kind == "JSON" else tomllib.loads(text)
    except OSError as error:
        raise WindlassError(f"The script {file} can't be read: {error.strerror}.", _HINT) from None
    except (ValueError, RecursionError) as error:
        why = str(error) or "it is nested too deeply"
        raise WindlassError(f"The script {file} is not {kind}: {why}.", _HINT) from None


def _from_json(text: str) -> Any:
    """Without halves of characters, which no answer could hold."""
    content = json.loads(text)
    json.dumps(content, ensure_ascii=False).encode()
    return content


def _in_words(error: ErrorDetails) -> str:
    place, keys = _place(error["loc"])
    what = error["msg"].removeprefix("Value error, ")
    if error["type"] == "extra_forbidden":
        return f"{place} has the key {keys[-1]!r}, which is none; there are {', '.join(_known(error['loc']))}"
    if error["type"] == "missing":
        return f"{place} has no {keys[-1]}: add one{' with [[rules]]' if keys[-1] == 'rules' else ''}"
    return f"{place}{'.'.join(['', *keys]) if keys else ''} {what[0].lower()}{what[1:]}"


def _place(location: tuple[int | str, ...]) -> tuple[str, list[str]]:
    """Rules are counted from 1, as people do."""
    if len(location) > 1 and location[0] == "rules":
        return f"rule {int(location[1]) + 1}", [str(step) for step in location[2:]]
    return "the file", [str(step) for step in location]


def _known(location: tuple[int | str, ...]) -> list[str]:
    table: type[BaseModel] = Call if "calls" in location else Rule if "rules" in location else _File
    return [field.alias or name for name, field in table.model_fields.items()]
