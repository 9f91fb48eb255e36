"""Answers one question about the files of a project, as the process that a `BoundedReader` starts.

The process takes the question from its standard input. Then it gives up its rights, sets its bounds, and only then
reads a file of the project. It writes lines to its standard output, each a word and a value as JSON: the files
that it opens, then the answer. All imports come first, because the user of the crews may not be able to read modules.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windlass.errors import WindlassError
from windlass.projects.checks import declared_project
from windlass.projects.findings import from_json
from windlass.projects.kinds import recognise
from windlass.projects.kinds.declared import read
from windlass.projects.packages import packages_in
from windlass.projects.reader import findings_of, needs_of
from windlass.projects.virtual_environments import VERSIONS
from windlass_child.process.hardening import PR_SET_DUMPABLE, become, confine, control, harden
from windlass_child.protocol.messages import Project

if TYPE_CHECKING:
    from collections.abc import Callable

    from windlass.projects.kinds import Recognised
    from windlass.projects.uv_inputs import Inputs

OUTPUT = 1
MOST_DESCRIPTORS = 64
MOST_FILES = 10_000
"""The most files whose names are reported."""
LONGEST_TEXT = 200
"""The most characters of a text that only messages contain."""


def recognised(root: str, folder: str | None, entrypoint: str | None) -> dict[str, Any]:
    return form_of(recognise(Path(root), folder, entrypoint))


def declared(root: str, entrypoint: str | None) -> dict[str, Any]:
    found, findings = declared_project(Path(root), entrypoint)
    return {"recognised": found and form_of(found), "findings": [one.to_json() for one in findings]}


def needs(project: dict[str, str]) -> dict[str, Any]:
    return needs_of(Project(**project))._asdict()


def findings(project: dict[str, str], reported: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [one.to_json() for one in findings_of(Project(**project), [from_json(one) for one in reported])]


def packages(root: str) -> dict[str, Any] | None:
    found = packages_in(Path(root))
    if found is None:
        return None
    of_poetry = found.poetry and {
        "content": text_of(found.poetry.content),
        "is_own": found.is_own,
        "own": list(found.own),
    }
    return {
        "file": found.file,
        "python": [text[:LONGEST_TEXT] for text in found.python],
        "fitting": [version for version in VERSIONS if found.runs_on(version)],
        "settings": text_of(found.settings.values),
        "ignored": list(found.settings.ignored),
        "inputs": found.inputs and form_of_inputs(found.inputs),
        "poetry": of_poetry,
    }


def inputs(root: str, markers: dict[str, str]) -> dict[str, Any] | None:
    found = packages_in(Path(root))
    return None if found is None else form_of_inputs(found.inputs_on(markers))


def form_of_inputs(found: Inputs) -> dict[str, Any]:
    return {
        "files": dict(found.files),
        "arguments": list(found.arguments),
        "own": list(found.own),
        "indexes": list(found.indexes),
        "reads_project": found.reads_project,
    }


def text_of(value: object) -> str:
    """Returns JSON, with dates in the form that uv reads."""
    return json.dumps(value, sort_keys=True, default=lambda date: date.isoformat())


def python(root: str) -> str | None:
    return read(Path(root)).text("tool", "windlass", "python")


QUESTIONS: dict[str, Callable[..., Any]] = {
    one.__name__: one for one in (recognised, declared, needs, findings, packages, inputs, python)
}


def form_of(found: Recognised) -> dict[str, Any]:
    return {
        "kind": found.project.kind,
        "entrypoint": found.project.entrypoint,
        "preload": found.preload,
        "name": found.name[:LONGEST_TEXT],
        "options": found.options.to_json(),
    }


def main() -> None:
    asked = json.loads(sys.stdin.buffer.read())
    report_files(asked["root"])
    give_up_rights(asked["user"], **asked["bounds"])
    write(answer(asked["question"], asked["arguments"]))
    os._exit(0)  # the end of the interpreter would take apart what it has parsed, object by object


def answer(question: str, arguments: list[Any]) -> bytes:
    try:
        return line("answer", QUESTIONS[question](*arguments))
    except WindlassError as error:
        return line("error", [error.message, error.hint])
    except MemoryError:
        return line("limit", "memory")
    except Exception as error:  # noqa: BLE001 - the server reports it: the parsers fail in many ways at odd files
        return line("fault", f"{type(error).__name__} in {place_of(error)}")


def place_of(error: Exception) -> str:
    """Returns the line of Windlass that failed. The message of the error may hold anything of the project."""
    trace, place = error.__traceback__, ""
    while trace is not None:
        file = Path(trace.tb_frame.f_code.co_filename)
        place = f"{file.name}:{trace.tb_lineno}" if "windlass" in file.parts else place
        trace = trace.tb_next
    return place


def line(word: str, value: Any) -> bytes:
    return f"{word} {json.dumps(value)}\n".encode()


def write(text: bytes) -> None:
    while text:
        text = text[os.write(OUTPUT, text) :]


def report_files(root: str) -> None:
    """Reports each file of the project that is opened from now on, so that the server can name the last one."""
    left = MOST_FILES

    def opened(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal left
        if event == "open" and left > 0 and str(arguments[0]).startswith(f"{root}/"):
            left -= 1
            write(line("file", str(arguments[0]).removeprefix(f"{root}/")))

    sys.addaudithook(opened)


def give_up_rights(user: list[int] | None, memory: int, processor: int, seconds: int) -> None:
    """Takes the bounds and the rights of a user without any other one. `user` is None for the server's own user.

    The kernel ends a process that uses more time, also when the server is gone.
    """
    resource.setrlimit(resource.RLIMIT_CPU, (processor, processor + 1))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (MOST_DESCRIPTORS, MOST_DESCRIPTORS))
    signal.alarm(seconds)
    harden()
    if user is not None:
        become(*user)
    if sys.platform == "linux":
        control(PR_SET_DUMPABLE, 0)
        resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))  # no process and no thread can be started
        confine()
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
