"""A file of rules that says what the offline model answers to which prompt (docs/offline-model.md)."""

from __future__ import annotations

import json
import stat
import sys
import tomllib
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from windlass.embedded.offline_answers import Answer, ChatRequest, calling, heard, in_its_form, saying, summary
from windlass.embedded.offline_rules import Call, Rule
from windlass.errors import WindlassError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
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


def on_standard_error(text: str) -> None:
    with suppress(OSError):
        sys.stderr.write(f"{text}\n")


class Script:
    """The rules, and how often each was used. With a source, they are what that says when they are asked for."""

    def __init__(self, rules: Sequence[Rule], *, strict: bool = False, source: Source | None = None) -> None:
        self.rules = tuple(rules)
        self.strict = strict
        self._source = source
        self._used: Counter[int] = Counter()

    @classmethod
    def read(cls, file: Path, *, strict: bool = False, say: Callable[[str], None] = on_standard_error) -> Script:
        """TOML, or JSON if the file's name says so. Raises WindlassError with all that is wrong with it.

        When the file changes, the script does; `say` is told so, or what is wrong with the new one.
        """
        source = Source(file, strict, say)
        found = source.read()
        return cls(found.rules, strict=found.strict, source=source)

    def reply(self, request: ChatRequest) -> Reply:
        """Of the first rule that fits and can be used, which counts as used then."""
        if self._source and (new := self._source.news()):
            self.rules, self.strict, self._used = tuple(new.rules), new.strict, Counter()
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


class Source:
    """A script's file, as it was when it was last looked at. With `strict` it is so whatever it says itself."""

    def __init__(self, file: Path, strict: bool, say: Callable[[str], None]) -> None:
        self._file = file
        self._strict = strict
        self._say = say
        self._seen: tuple[int, ...] | None = None

    def read(self) -> _File:
        """Raises WindlassError."""
        self._seen = _look(self._file)
        content = _content(self._file)
        try:
            found = _File.model_validate(content)
        except ValidationError as error:
            wrong = "; ".join(_in_words(one) for one in error.errors(include_url=False))
            raise WindlassError(f"The script {self._file} can't be used: {wrong}.", _HINT) from None
        return found.model_copy(update={"strict": self._strict or found.strict})

    def news(self) -> _File | None:
        """What it holds when it has changed and can be used."""
        if _look(self._file) == self._seen:
            return None
        try:
            found = self.read()
        except WindlassError as error:
            self._say(f"warning: the script's rules of before hold on until it is mended: {error}")
            return None
        self._say(f"the script {self._file} has changed: its new rules answer from now on")
        return found


def _look(file: Path) -> tuple[int, ...] | None:
    """Changes with the file. What is no file can be read once only: it never changes."""
    try:
        found = file.stat()
    except OSError:
        return None
    return (found.st_ino, found.st_mtime_ns, found.st_size) if stat.S_ISREG(found.st_mode) else ()


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
        text = file.read_text("utf-8-sig")
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
