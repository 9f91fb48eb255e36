"""Reads the inputs of a kickoff, and its options for the queue, the limits and a batch, from the command line."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar
from urllib.parse import unquote

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping


Command = TypeVar("Command", bound="Callable[..., Any]")
Inputs = dict[str, Any]


def given_inputs(file: str | None, text: str | None, pairs: Iterable[str]) -> Inputs:
    """Returns the inputs of the file, overridden by the JSON text, overridden by NAME=VALUE pairs.

    Raises click.UsageError, which names the option that can't be read.
    """
    inputs = json_object(file, "--inputs") if file is not None else {}
    inputs |= json_object(text, "--inputs-json") if text is not None else {}
    return inputs | dict(map(pair, pairs))


def pair(given: str) -> tuple[str, Any]:
    """Parses `name=text`, or `name:=json` for a JSON value. `fitted` converts the text."""
    name, equals, value = given.partition("=")
    if not equals or not name.removesuffix(":"):
        raise click.UsageError(f"-i {given}: give NAME=VALUE, or NAME:=JSON for a JSON value of a certain type.")
    if not name.endswith(":"):
        return name, value
    return name[:-1], json_value(value, f"-i {given}")


def has_texts(pairs: Iterable[str]) -> bool:
    """Returns whether one of the pairs is `name=text`, whose value depends on the schema of the crew."""
    return any(not given.partition("=")[0].endswith(":") for given in pairs)


def fitted(inputs: Inputs, pairs: Iterable[str], schema: Mapping[str, Any]) -> Inputs:
    """Returns the inputs with the texts of `pairs` converted to the types that the schema of the crew demands.

    A text stays a text where the schema accepts one. Raises click.UsageError for a text that is no value of the type.
    """
    properties = schema.get("properties") or {}
    texts: dict[str, str | None] = {}  # of several pairs with one name, the last one counts
    for given in pairs:
        name, _, value = given.partition("=")
        texts[name.removesuffix(":")] = None if name.endswith(":") else value
    return inputs | {
        name: _of_types(name, text, types)
        for name, text in texts.items()
        if text is not None and (types := _types(properties.get(name, {}), schema)) is not None
        if "string" not in types
    }


TYPES: dict[type, frozenset[str]] = {
    bool: frozenset({"boolean"}),
    int: frozenset({"integer", "number"}),
    float: frozenset({"number"}),
    str: frozenset({"string"}),
    list: frozenset({"array"}),
    dict: frozenset({"object"}),
    type(None): frozenset({"null"}),
}
"""Maps the type of a parsed JSON value to its names in JSON Schema."""
EXAMPLES = {"integer": "3", "number": "2.5", "boolean": "true", "array": '["a", "b"]', "object": '{"a": 1}'}
WORDS = {"true": "true", "false": "false", "null": "null", "none": "null"}
"""Maps words, in any case, to JSON: people write True and None as in Python."""
DEEPEST_SCHEMA = 20


def _of_types(name: str, text: str, types: frozenset[str]) -> Any:
    try:
        value = json.loads(WORDS.get(text.strip().lower(), text), parse_constant=_refuse)
    except (ValueError, RecursionError):
        value = text
    found = TYPES[type(value)] | ({"integer"} if isinstance(value, float) and value.is_integer() else set())
    if found & types:
        return value
    wanted = " or ".join(sorted(types))
    example = next((f" -i '{name}:={EXAMPLES[one]}'" for one in sorted(types) if one in EXAMPLES), " -i 'NAME:=JSON'")
    raise click.UsageError(
        f"-i {name}={text}: the crew's schema demands {wanted}, and this text is not one. "
        f"Give a JSON value with := in place of =, such as{example}"
    )


def _types(schema: object, root: Mapping[str, Any], depth: int = 0) -> frozenset[str] | None:
    """Returns the names of the JSON types that the schema accepts. Returns None if it accepts all, or is not clear."""
    if not isinstance(schema, dict) or depth > DEEPEST_SCHEMA:
        return None
    found = [one for one in _restrictions(schema, root, depth) if one is not None]
    return frozenset.intersection(*found) if found else None


def _restrictions(schema: dict[str, Any], root: Mapping[str, Any], depth: int) -> Iterator[frozenset[str] | None]:
    if isinstance(kind := schema.get("type"), str | list):
        names = frozenset([kind] if isinstance(kind, str) else map(str, kind))
        yield names | {"integer"} if "number" in names else names
    values = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if isinstance(values, list):
        yield frozenset().union(*(TYPES.get(type(one), frozenset()) for one in values))
    for keyword in ("anyOf", "oneOf"):
        if isinstance(schema.get(keyword), list):
            ways = [_types(one, root, depth + 1) for one in schema[keyword]]
            yield None if None in ways else frozenset().union(*filter(None, ways))
    yield from (_types(one, root, depth + 1) for one in schema.get("allOf") or () if isinstance(one, dict))
    if isinstance(reference := schema.get("$ref"), str) and reference.startswith("#/"):
        yield _types(_at_pointer(root, reference), root, depth + 1)


def _at_pointer(root: Mapping[str, Any], reference: str) -> object:
    place: Any = root
    for step in unquote(reference).removeprefix("#/").split("/"):
        place = place.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(place, dict) else None
    return place


def json_object(text: str, where: str) -> Inputs:
    value = json_value(text, where)
    if not isinstance(value, dict):
        raise click.UsageError(f'{where}: give a JSON object such as {{"topic": "tea"}}.')
    return value


def json_value(text: str, where: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise click.UsageError(f"{where}: this is not JSON: {error}.") from None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON number")


MOST_OPEN = 1000
STRATEGIES = ("enqueue", "reject", "cancel_running")


def limits_given(_: click.Context, __: click.Parameter, pairs: Iterable[str]) -> dict[str, Any] | None:
    return dict(map(limit, pairs)) or None


def limit(given: str) -> tuple[str, Any]:
    """Parses `token_limit=1000` to a number and `memory_limit=512 MB` to a text. The server checks the types."""
    name, equals, value = given.partition("=")
    if not (equals and name and value):
        raise click.BadParameter(f"{given!r}: give NAME=VALUE, such as timeout=600 or 'memory_limit=512 MB'.")
    try:
        number = json.loads(value)
    except ValueError:
        return name, value
    if not isinstance(number, int | float):
        return name, value
    if not math.isfinite(number):
        raise click.BadParameter(f"{given!r}: a limit is a finite number. Leave the option out to set no limit.")
    return name, number


def finite(_: click.Context, __: click.Parameter, seconds: float | None) -> float | None:
    if seconds is not None and not math.isfinite(seconds):
        raise click.BadParameter(
            f"{seconds} is no number of seconds. Without this option the crew's own timeout applies."
        )
    return seconds


def queue_options(command: Command) -> Command:
    """Adds an option for each of these members of the request to the command. Its name is that of the member."""
    for decorate in (
        click.option(
            "--concurrency-strategy",
            "concurrencyStrategy",
            type=click.Choice(STRATEGIES),
            help="What to do when another kickoff with the same key is open, in place of the crew's own strategy.",
        ),
        click.option(
            "--concurrency-key",
            "concurrencyKey",
            metavar="KEY",
            help="Of the crew's kickoffs with the same key, one runs at a time.",
        ),
        click.option(
            "--limit",
            "limits",
            multiple=True,
            metavar="NAME=VALUE",
            callback=limits_given,
            help="A limit of the run, such as token_limit=100000 or 'memory_limit=512 MB'; the option can be repeated.",
        ),
        click.option(
            "--timeout",
            type=click.FloatRange(min=0, min_open=True),
            callback=finite,
            metavar="SECONDS",
            help="Longest time of the kickoff from its first start.",
        ),
        click.option(
            "--run-at",
            "runAt",
            metavar="TIME",
            help="Time before which it does not start, such as 2026-01-15T09:30:00Z.",
        ),
        click.option(
            "--priority",
            type=click.IntRange(-100, 100),
            metavar="NUMBER",
            help="From -100 to 100. Kickoffs of the crew with a higher priority start first.",
        ),
    ):
        command = decorate(command)
    return command


def given_members(members: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


def each_options(command: Command) -> Command:
    """Adds the options each, concurrency, out and retry_failed to the command."""
    for decorate in (
        click.option(
            "--retry-failed",
            is_flag=True,
            help="Start the lines again that have failed according to --out FILE.",
        ),
        click.option(
            "--out",
            metavar="FILE",
            callback=_a_file,
            help="Write the results of --each to FILE, as JSON lines. The same command continues from there.",
        ),
        click.option(
            "--concurrency",
            type=click.IntRange(1, MOST_OPEN),
            default=8,
            show_default=True,
            metavar="NUMBER",
            help="How many kickoffs of --each are open at a time.",
        ),
        click.option(
            "--each",
            type=click.File("rb"),
            metavar="FILE",
            help="Start a kickoff for each line of FILE (- for standard input). A line is a JSON object of inputs.",
        ),
    ):
        command = decorate(command)
    return command


def _a_file(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    if value == "-":
        raise click.BadParameter(
            "results go to standard output when --out is left out. For a file of this name, give ./-."
        )
    return value


def check_together(*, each: bool, out: bool, retry_failed: bool, watch: bool, json_output: bool) -> None:
    """Raises click.UsageError for options that can't be combined."""
    if retry_failed and not out:
        raise click.UsageError("--retry-failed reads earlier results of --each: give --out FILE too.")
    if out and not each:
        raise click.UsageError("--out stores the results of --each: give --each FILE too.")
    if each and watch:
        raise click.UsageError("--each always follows its kickoffs: leave --watch out.")
    if each and json_output:
        raise click.UsageError("--each always prints JSON lines: leave --json out.")
