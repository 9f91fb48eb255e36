"""Describes an error of crew code in two lines: what happened and where, and what to do."""

from __future__ import annotations

import builtins
import contextlib
import errno
import importlib.util
import os
import re
import shlex
import sys
import traceback
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from windlass_child.masking.server_paths import is_deployed
from windlass_child.protocol.messages import Failed
from windlass_child.protocol.working_folder import PACKAGE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType, TracebackType

LONGEST_LINE = 600
LONGEST_TRACE = 200_000

EXECUTABLE = sys.executable
"""The interpreter of the project's packages. A run may have a small environment of its own (own_package)."""

OWN_CODE = Path(__file__).parents[1]

NOT_CODE_OF_THE_PROJECT = {".venv", "venv", "site-packages"}

DISTRIBUTIONS = {
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python",
    "dotenv": "python-dotenv",
    "google.genai": "google-genai",
    "google.generativeai": "google-generativeai",
    "PIL": "pillow",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}
"""Import names whose package on the index has a different name."""

REMEDIES = {
    "AuthenticationError": "Check the model's API key among the crew's variables.",
    "PermissionDeniedError": "Check what the model's API key is allowed to use.",
    "RateLimitError": "Wait, or raise the limits of the account at the model's provider.",
    "APITimeoutError": "The model took too long: try again, or raise the timeout of the crew's LLM.",
    "APIConnectionError": "Check the network, and the base URL of the model.",
    "ConnectError": "Check the network, and the address that was called.",
    "ConnectionRefusedError": "Check that what the crew calls is running, and its address.",
    "MemoryError": "Give the machine more memory, or the crew less to do at once.",
    "RecursionError": "Look for a function that calls itself without end.",
}
"""Hints by the name of the exception's class: the modules of these classes are not imported here."""

INPUT_READ = "EOF when reading a line"
"""The text of the EOFError of the original input(), which process_env.refuse_input replaces. Other code raises EOFError
with other texts.
"""

QUESTIONS = {"click.termui": "text", "getpass": "prompt"}
"""The modules of libraries that ask at a terminal, and the names of the variables with the question."""

NOT_FOUND: dict[tuple[str, str], Callable[[dict[str, Any]], str]] = {}
"""Functions that return the text for a StopIteration without one, from the variables of the function that raised it.
The keys are the file and the name of that function. Adapters of frameworks add theirs.
"""

READ_ONLY = {errno.EACCES, errno.EPERM, errno.EROFS}
OF_THE_CODE = (NameError, AttributeError, ImportError, SyntaxError)
"""Errors of the code, which no variable corrects, although their texts may contain the name of one."""

NO_TEXT = "without a message"
UNREADABLE = "(its text could not be made)"

EXTRA = re.compile(r"[A-Za-z][\w.-]*\[[a-z][a-z0-9-]*\]")
QUOTES = str.maketrans("\"'`", "   ")
CANNOT_IMPORT = re.compile(r"cannot import name '(\w+)' from '([\w.]+)'")
MOST_FOLDERS, DEEPEST = 500, 3
"""The limits of a search for the modules of a project."""

OWN_NAME = re.compile(r"""^\[(?:project|tool\.poetry)\][^\[]*?^name\s*=\s*["']([^"'\n]+)""", re.MULTILINE)
LOCKED = re.compile(r"\bdatabase (?:table )?is locked")
KEY_NAME = re.compile(r"\b[A-Z][A-Z0-9_]*(?:API_KEY|TOKEN|SECRET)\b")


class ProjectFault(Exception):  # noqa: N818 - describes the project
    """A fault that the author of the project can correct, already described. `reason` is as in messages.Failed.

    `code` is that of the finding for a project that can't be loaded (windlass.projects.findings.CODES).
    """

    reason = "error"
    code = "load_failed"

    def __init__(self, message: str, hint: str = "", code: str = code) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.code = code


class LimitReached(ProjectFault):
    """The run has used up one of its limits."""

    reason = "limit"


class NobodyAnswers(ProjectFault, EOFError):  # noqa: N818 - as above
    """Code asked a person, for example by input(). It is an EOFError too, because code that can continue without an
    answer expects that.
    """


class StartedAtImport(ProjectFault):
    """A module of the project starts a crew, a flow or an agent, `started`, while it is imported.

    `called` names the method that starts it. `inputs` are those of this kickoff, `names` the variables of the module.
    `modules` are the modules that were being imported, by name. Python removes them from sys.modules; whoever uses
    their classes adds them again, or a later import would run their code once more.
    """

    def __init__(
        self, started: Any, called: str, inputs: dict[str, Any], names: dict[str, Any], modules: dict[str, ModuleType]
    ) -> None:
        super().__init__(
            f"the code starts {called}() while it is imported, so that each load would run it",
            'Move this line below `if __name__ == "__main__":`.',
            "runs_at_import",
        )
        self.started = started
        self.called = called
        self.inputs = inputs
        self.names = names
        self.modules = modules


INSTEAD_OF_A_PERSON = "or let a person approve the result after the kickoff."
"""The end of the hints for projects that ask a person."""


class InputsRefused(Exception):  # noqa: N818 - describes the inputs
    """The crew can't take these inputs. The text names the inputs and the reason."""


def explain(error: BaseException, stage: str, root: str, mask: Callable[[str], str] = str) -> Failed:
    """Returns the `Failed` for any exception of crew code at its load or run. `root` is the project's folder.

    `mask` masks the texts before they are cut: it does not recognise half a secret.
    """
    frames_of = own_trace(error, Path(root)) if stage == "load" else traceback.format_exception(error)
    trace = shortened(mask("".join(frames_of)))
    if isinstance(error, InputsRefused):
        return Failed("inputs", one_line(mask(str(error))), trace)
    message, hint = map(mask, words_for(error, Path(root)))
    reason = error.reason if isinstance(error, ProjectFault) else ProjectFault.reason
    place = own_place(error, Path(root)) if is_of_the_code(error) else ""
    message = one_line(message) if not place or f"{place})" in message else located(message, place)
    return Failed(stage, sentence(message) if hint else message, trace, hint, reason)


def is_of_the_code(error: BaseException) -> bool:
    """Returns whether a line of the project caused the error, in contrast to a limit, a stop or its result."""
    return not isinstance(error, ProjectFault) or isinstance(error, NobodyAnswers | StartedAtImport)


def own_place(error: BaseException, root: Path) -> str:
    """Returns the last line of the project's own code that led to the error, if a framework has replaced it too."""
    return next(filter(None, (where(cause, root) for cause in chain(error))), "")


def located(message: str, place: str) -> str:
    """Returns the message in one line that ends with the place. The place is never cut."""
    at = f" ({place})"
    line = one_line(message, LONGEST_LINE - len(at))
    return f"{line[:-1]}{at}." if line.endswith(".") and not line.endswith("..") else f"{line}{at}"


def own_trace(error: BaseException, root: Path) -> Iterator[str]:
    """Yields the traceback with the frames of the project alone. An exception without any keeps those of libraries.

    A ProjectFault that no line of the project raised is left out: the message has its text.
    """
    seen: BaseException | None = error
    while isinstance(seen, ProjectFault) and not raised_inside(seen, root):
        seen = seen.__cause__ or (None if seen.__suppress_context__ else seen.__context__)
    if seen is None:
        return
    whole = traceback.TracebackException.from_exception(seen)
    one: traceback.TracebackException | None = whole
    while one is not None:
        own = [frame for frame in one.stack if inside(frame.filename, root) is not None]
        if not own and not inside(getattr(one, "filename", None) or "", root):  # a SyntaxError has its file
            own = [frame for frame in one.stack if not Path(frame.filename).is_relative_to(OWN_CODE)]
        one.stack = traceback.StackSummary.from_list(own)
        one = one.__cause__ or one.__context__
    yield from whole.format()


def raised_inside(error: BaseException, root: Path) -> bool:
    frames = traceback.extract_tb(error.__traceback__)
    return any(inside(frame.filename, root) is not None for frame in frames)


def shortened(trace: str) -> str:
    """Returns the beginning and the end of a long trace: the text of an exception may be of any length."""
    if len(trace) <= LONGEST_TRACE:
        return trace
    half = LONGEST_TRACE // 2
    return f"{trace[:half]}\n[...]\n{trace[-half:]}"


def words_for(error: BaseException, root: Path) -> tuple[str, str]:
    """Returns the message and the hint. `explain` adds the place to a message without one."""
    if isinstance(error, ProjectFault):
        return error.message, error.hint
    if isinstance(error, SystemExit):
        code = made(repr, error.code)
        return f"the crew's code ended its process with sys.exit({code})", "Return instead of exiting."
    if isinstance(error, ImportError) and (words := missing(error, where(error, root), root)):
        return words.message, words.hint
    if (question := asked_at_terminal(error)) is not None:
        return nobody_answered(question), instead_of_an_answer(question, root)
    return f"{type(error).__name__}: {own_text(error, root)}", remedy(error, root)


def of_caught(error: BaseException) -> str:
    """Returns the text of an exception that a framework caught, for example one of a tool."""
    if isinstance(error, ProjectFault):
        return error.message
    question = asked_at_terminal(error)
    return f"{type(error).__name__}: {text_of(error)}" if question is None else nobody_answered(question)


def nobody_answered(question: str) -> str:
    asked = f"asked {question!r}" if question else "asked something"
    return f"the code {asked} at the terminal, but a kickoff has no one to answer"


def own_text(error: BaseException, root: Path) -> str:
    """Returns the text of the error. The text of a SyntaxError in the project's code comes without its place, which the
    message names separately.
    """
    if isinstance(error, SyntaxError) and place_of_syntax(error, root):
        return error.msg
    text = text_of(error)
    return text if text != NO_TEXT else without_text(error, root)


def without_text(error: BaseException, root: Path) -> str:
    """Returns a text for an error that has none: the function of a library that raised it, or what it did not find."""
    frame = next(reversed([frame for frame, _ in traceback.walk_tb(error.__traceback__)]), None)
    if frame is None:
        return NO_TEXT
    file, name = Path(frame.f_code.co_filename), frame.f_code.co_name
    if file.is_relative_to(OWN_CODE) or inside(str(file), root) is not None:
        return NO_TEXT
    place = "/".join(file.parts[-2:])
    if isinstance(error, StopIteration) and (describe := NOT_FOUND.get((place, name))):
        return made(describe, frame.f_locals)
    return f"{NO_TEXT}, raised in {name} of {place}"


def text_of(error: BaseException) -> str:
    """Returns an exception's text. For a ValidationError of pydantic that is each field with its problem, without the
    values.
    """
    if isinstance(error, groups()):
        return "; ".join(f"{type(one).__name__}: {text_of(one)}" for one in cast("Any", error).exceptions)
    if type(error).__name__ == "ValidationError" and callable(getattr(error, "errors", None)):
        return made(lambda invalid: "; ".join(map(field_problem, cast("Any", invalid).errors())), error)
    return made(str, error) or NO_TEXT


def groups() -> Any:
    """Returns the class of exception groups, or () without one. On Python 3.10 it is that of the package
    `exceptiongroup`, if code has imported this package.
    """
    return getattr(builtins, "BaseExceptionGroup", getattr(sys.modules.get("exceptiongroup"), "BaseExceptionGroup", ()))


def made(make: Callable[[Any], str], value: object) -> str:
    try:
        return make(value)
    except Exception:  # noqa: BLE001 - a method of crew code may raise anything; the original error is reported anyway
        return UNREADABLE


def field_problem(problem: dict[str, Any]) -> str:
    return ": ".join(filter(None, [".".join(map(str, problem["loc"])), problem["msg"]]))


def asked_at_terminal(error: BaseException) -> str | None:
    """Returns the question of a library for terminals that nobody answered, "" for one without a text, else None.

    The exceptions of these libraries do not carry it: click ends with an Abort without a text.
    """
    for one in chain(error):
        for frame, _ in traceback.walk_tb(one.__traceback__):
            if (name := QUESTIONS.get(str(frame.f_globals.get("__name__")))) and isinstance(
                one, EOFError | RuntimeError
            ):
                return made(lambda variables: str(variables.get(name) or "").strip(), frame.f_locals)
    return None


def instead_of_an_answer(question: str, root: Path) -> str:
    if re.search(r"\b(?:install|missing|package)", question, re.IGNORECASE):
        return f"Name the package among the project's dependencies, and {install(root)}"
    return f"Make it an input of the kickoff, {INSTEAD_OF_A_PERSON}"


def remedy(error: BaseException, root: Path) -> str:
    return of_this_error(error, root) or of_an_extra(error, root) or of_a_cause(error) or of_its_text(error)


def of_this_error(error: BaseException, root: Path) -> str:
    if isinstance(error, NameError) and (name := getattr(error, "name", None)) and KEY_NAME.fullmatch(name):
        return f'The code has no variable {name}. It can read one of the crew\'s variables with os.environ["{name}"].'
    if isinstance(error, OSError) and error.errno in READ_ONLY and error.filename is not None:
        return how_to_write(str(error.filename), root)
    unset = unset_variable(error)
    return f"Set {unset} among the crew's variables." if unset else ""


def of_an_extra(error: BaseException, root: Path) -> str:
    """Returns the hint for an extra of a package that an import error asks for, as frameworks do for clients of models.

    The command in such a text installs into another environment than the project's.
    """
    if not isinstance(error, ImportError):
        return ""
    texts = (made(str, cause)[:LONGEST_TRACE] for cause in chain(error))
    words = (word for text in texts if "install" in text for word in text.translate(QUOTES).split())
    found = next(filter(EXTRA.fullmatch, words), None)
    return f"Add {found!r} to the project's dependencies, and {install(root)}" if found else ""


def of_a_cause(error: BaseException) -> str:
    for cause in chain(error):
        if type(cause).__name__ == "OperationalError" and LOCKED.search(made(str, cause)[:LONGEST_LINE]):
            return how_to_share(cause)
        if isinstance(cause, NobodyAnswers):
            return cause.hint
        if isinstance(cause, EOFError) and made(str, cause) == INPUT_READ:
            return "A kickoff has no standard input, and no one to answer."
        for kind in type(cause).__mro__:
            if kind.__name__ in REMEDIES:
                return REMEDIES[kind.__name__]
    return ""


def how_to_share(error: BaseException) -> str:
    """Returns the hint for a locked SQLite database. Its file is that of a connection in the frames of the error."""
    values = [value for frame, _ in traceback.walk_tb(error.__traceback__) for value in frame.f_locals.values()]
    connection = getattr(sys.modules.get("sqlite3"), "Connection", ())
    files = (made(file_of, value) for value in reversed(values) if isinstance(value, connection))
    name = next((f" {file}" for file in files if file not in {"", UNREADABLE}), "")
    return (
        f"Another process holds the SQLite database{name} for longer than this code waits. Let each kickoff use a file "
        "of its own, or let fewer kickoffs of the crew run at once."
    )


def file_of(connection: Any) -> str:
    return str(connection.execute("PRAGMA database_list").fetchone()[2])


def of_its_text(error: BaseException) -> str:
    keys = () if isinstance(error, OF_THE_CODE) else KEY_NAME.findall(made(str, error)[:LONGEST_TRACE])
    return f"Set {keys[0]} among the crew's variables." if keys else ""


def how_to_write(filename: str, root: Path) -> str:
    instead = "Write into the working folder by a path relative to it, such as open('result.md', 'w'), or into $TMPDIR."
    if Path(filename).is_relative_to(root):
        return f"The project's own folder is read-only in a run. {instead}"
    opens = "The setting files of the deployment, or WINDLASS_CREW_FILES, opens others, as in /data:ro."
    return f"The process of a crew may not use this path. {instead} {opens}"


def unset_variable(error: BaseException) -> str | None:
    """Returns `name` if the access to os.environ[name] failed, else None."""
    if not isinstance(error, KeyError):
        return None
    modules = [frame.f_globals.get("__name__") for frame, _ in traceback.walk_tb(error.__traceback__)]
    return error.args[0] if modules[-1:] == ["os"] else None


def chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def raised_by_the_project(error: BaseException, root: Path) -> BaseException | None:
    """Returns the exception that the project's code raised, if a framework replaced it by one of its own."""
    return next((cause for cause in chain(error) if where(cause, root)), None)


class NotThere(NamedTuple):
    """The words for an import of something that is not there. `code` is that of the finding."""

    code: str
    message: str
    hint: str


def missing(error: ImportError, place: str, root: Path) -> NotThere | None:
    """Returns the words for an import of something that is not there, or None for other errors.

    No hint names a package to install that may be a module of the project itself: someone else may own that name.
    """
    if isinstance(error, metadata.PackageNotFoundError):
        return without_metadata(str(error.args[0]), f" (read at {place})" if place else "", root)
    at = f" (imported at {place})" if place else ""
    if isinstance(error, ModuleNotFoundError) and error.name:
        return missing_module(error.name, at, root)
    named = CANNOT_IMPORT.match(made(str, error)[:LONGEST_LINE])
    if named is None:
        return None
    if of_the_project(named[2], root):
        return hidden(named[2], at, root)
    if is_namespace(named[2]):
        return missing_package(f"{named[2]}.{named[1]}", at, root)
    return not_in_release(named[2].partition(".")[0], f"{named[1]} in {named[2]}", at, root)


def missing_module(name: str, at: str, root: Path) -> NotThere:
    top, inner, _ = name.partition(".")
    if of_the_project(name, root):
        return hidden(name, at, root) or missing_in_project(name, at, root)
    if inner and is_namespace(top):  # several packages have modules in it, such as `google`
        return missing_package(first_missing(name), at, root)
    if inner and is_installed(top):
        return not_in_release(top, f"module {name}", at, root)
    return missing_package(top, at, root)


def hidden(name: str, at: str, root: Path) -> NotThere | None:
    """Returns the words for a module of the project that can't be imported, because a module of Python or of a package
    with the same name is loaded. None if that is not the case.
    """
    top = name.partition(".")[0]
    loaded = getattr(sys.modules.get(top), "__file__", None)
    if not loaded or inside(loaded, root) is not None:
        return None
    own = places_in(top, root)[0]
    message = f"{own} of the project is not imported, because {loaded} has the same name{at}"
    return NotThere("missing_module", message, f"Rename {own}.")


def missing_in_project(name: str, at: str, root: Path) -> NotThere:
    there = ", ".join(places_in(name.partition(".")[0], root)[:3])
    hint = f"There is {there}. Modules are looked for in the project's folder and in src: correct the import."
    return NotThere("missing_module", f"the project has no module {name!r}{at}", hint)


def not_in_release(top: str, what: str, at: str, root: Path) -> NotThere:
    hint = f"Change the import, or require a release that has it and {install(root)}"
    return NotThere("missing_module", f"{release_of(top)} has no {what}{at}", hint)


def release_of(top: str) -> str:
    """Returns the distribution of an import package with its version: "pydantic 2.12.0"."""
    try:
        return f"{top} {metadata.version(top)}"
    except metadata.PackageNotFoundError:
        found = metadata.packages_distributions().get(top)
        return f"{found[0]} {metadata.version(found[0])}" if found else top


def without_metadata(name: str, at: str, root: Path) -> NotThere:
    """Returns the words for a read of the metadata of a package, such as its version, that is not installed."""
    if plain(name) != plain(own_name(root)):
        return missing_package(name, at, root)
    message = f"the project itself, {name}, is no package, so it has no metadata{at}"
    hint = "Write [build-system] in its pyproject.toml, or package = true below [tool.uv]."
    return NotThere("missing_package", message, hint)


def own_name(root: Path) -> str:
    """Returns the name in the project's pyproject.toml, or "". Python 3.10 has no parser for it."""
    with contextlib.suppress(OSError, ValueError):
        found = OWN_NAME.search((root / "pyproject.toml").read_text("utf-8").removeprefix("\ufeff"))
        return found[1] if found else ""
    return ""


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def is_namespace(module: str) -> bool:
    """Returns whether the module is a folder without code of its own, in which several packages may have modules."""
    try:
        found = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return False
    return found is not None and found.origin is None and found.submodule_search_locations is not None


def first_missing(module: str) -> str:
    """Returns the first part of the module's path that is in no namespace: "google.genai" of "google.genai.types"."""
    parts = module.split(".")
    names = [".".join(parts[:count]) for count in range(1, len(parts) + 1)]
    return next((name for name in names if not is_namespace(name)), module)


def is_installed(top: str) -> bool:
    try:
        return importlib.util.find_spec(top) is not None
    except (ImportError, ValueError):
        return False


def missing_package(package: str, at: str, root: Path) -> NotThere:
    message = f"the package {package!r} is not installed{in_interpreter(root)}{at}"
    known = f" ({DISTRIBUTIONS[package]})" if package in DISTRIBUTIONS else ""
    hint = f"Name its package{known} among the project's dependencies, and {install(root)}"
    return NotThere("missing_package", message, hint)


def in_interpreter(root: Path | str) -> str:
    """Returns " in " and the interpreter that packages are installed in, and "" for a deployed project: its
    environment is the server's.
    """
    return "" if is_deployed(root) else f" in {interpreter()}"


def interpreter() -> str:
    """Returns the interpreter that packages are installed in: this one, or the one that it was copied from
    (windlass.runner.prepared_interpreters).
    """
    with contextlib.suppress(OSError):
        for line in (Path(sys.prefix) / "pyvenv.cfg").read_text("utf-8").splitlines():
            name, _, value = line.partition(" = ")
            if name == "prepared-from":
                return value
    return EXECUTABLE


def install(root: Path | str) -> str:
    """Returns what installs changed dependencies of a project, as the end of a sentence: a command that makes an
    environment of its own, or another deploy.
    """
    return "deploy the project again." if is_deployed(root) else f"run: {setup_command(root)}"


def setup_command(root: Path | str) -> str:
    """Returns the command that installs the packages of a project, into an environment of its own."""
    return f"windlass setup {shlex.quote(str(root))}"


def of_the_project(module: str, root: Path) -> bool:
    """Returns whether a folder or a file of the project has the name of the module's top package."""
    return bool(places_in(module.partition(".")[0], root))


def places_in(top: str, root: Path) -> list[str]:
    """Returns the paths in the project of folders and Python files with this name, at most three folders deep."""
    found, folders = [], [(root, 0)]
    for folder, depth in folders:
        try:
            entries = sorted(folder.iterdir()) if len(folders) < MOST_FOLDERS else []
        except OSError:
            continue
        for entry in entries:
            if entry.name == f"{top}.py" or (entry.name == top and entry.is_dir()):
                found.append(str(entry.relative_to(root)))
            if depth < DEEPEST and entry.name.isidentifier() and entry.is_dir() and not entry.is_symlink():
                folders.append((entry, depth + 1))
    return found


def where(error: BaseException, root: Path) -> str:
    """Returns the last line of the project's own code in the trace, as "src/pkg/crew.py:12", or "" if there is none."""
    if isinstance(error, SyntaxError) and (place := place_of_syntax(error, root)):
        return place
    places = [place for place in frames(error.__traceback__, root) if place]
    return places[-1] if places else ""


def place_of_syntax(error: SyntaxError, root: Path) -> str:
    """Returns the place of the syntax error, or "" if it is in no file of the project."""
    named = inside(error.filename, root) if error.filename else None
    return "" if named is None else f"{named}:{error.lineno}"


def frames(trace: TracebackType | None, root: Path) -> Iterator[str]:
    for frame, line in traceback.walk_tb(trace):
        named = inside(frame.f_code.co_filename, root)
        if named is not None:
            yield f"{named}:{line}"


def inside(filename: str, root: Path) -> str | None:
    path = Path(filename)
    if PACKAGE in path.parts:  # a package of the project by a link (own_package)
        path = Path(os.path.realpath(path))
    if not path.is_relative_to(root) or NOT_CODE_OF_THE_PROJECT & set(path.relative_to(root).parts):
        return None
    return str(path.relative_to(root))


def sentence(text: str) -> str:
    """Returns the text as one line that ends with a full stop, so that a hint can follow."""
    line = one_line(text)
    return line if line.endswith((".", "!", "?", "…")) else f"{line}."


def one_line(text: str, longest: int = LONGEST_LINE) -> str:
    line = " ".join(text.split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"
