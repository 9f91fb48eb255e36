"""What went wrong in crew code, in words: one line that says what happened and where, and one that says what to do."""

from __future__ import annotations

import importlib.util
import re
import shutil
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from windlass_crewside.messages import Failed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

LONGEST_LINE = 600
LONGEST_TRACE = 200_000

NOT_CODE_OF_THE_PROJECT = {".venv", "venv", "site-packages"}

DISTRIBUTIONS = {
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python",
    "dotenv": "python-dotenv",
    "PIL": "pillow",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}
"""Import names whose package on the index has quite another name."""

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
"""By the name of the exception's class: their modules are not imported here."""

INPUT_READ = "EOF when reading a line"
"""The text of the EOFError of an input() that was not replaced (nobody.answers_input); other code has its own."""

NOT_SAID = "without a message"
NOT_SAYABLE = "(its text could not be made)"

KEY_NAME = re.compile(r"\b[A-Z][A-Z0-9_]*(?:API_KEY|TOKEN|SECRET)\b")


class ProjectFault(Exception):  # noqa: N818 - said of the project
    """Something that its author can mend, already in words. `reason` as in messages.Failed."""

    reason = "error"

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class LimitReached(ProjectFault):
    """The run used up what it may use."""

    reason = "limit"


class NobodyAnswers(ProjectFault, EOFError):  # noqa: N818 - as above
    """Code asked a person, by input() say. An EOFError, which is what code that can do without an answer expects."""


class InputsRefused(Exception):  # noqa: N818 - said of the inputs
    """The crew can't take these inputs; the text says which and why."""


def explain(error: BaseException, stage: str, root: str) -> Failed:
    """The `Failed` for whatever crew code raised while it was loaded or run; `root` is the project's folder."""
    trace = shortened("".join(traceback.format_exception(error)))
    if isinstance(error, InputsRefused):
        return Failed("inputs", one_line(str(error)), trace)
    message, hint = words_for(error, stage, Path(root))
    reason = error.reason if isinstance(error, ProjectFault) else ProjectFault.reason
    return Failed(stage, sentence(message) if hint else one_line(message), trace, hint, reason)


def shortened(trace: str) -> str:
    """Its two ends: an exception's text may hold all that a program has."""
    if len(trace) <= LONGEST_TRACE:
        return trace
    half = LONGEST_TRACE // 2
    return f"{trace[:half]}\n[...]\n{trace[-half:]}"


def words_for(error: BaseException, stage: str, root: Path) -> tuple[str, str]:
    place = where(error, root)
    text = own_text(error, root)
    to_place = stage == "load" or isinstance(error, SyntaxError) or text in (NOT_SAID, NOT_SAYABLE)
    at = f" ({place})" if place and to_place else ""
    if isinstance(error, NobodyAnswers):
        return f"{error.message} ({place})" if place else error.message, error.hint
    if isinstance(error, ProjectFault):
        return error.message, error.hint
    if isinstance(error, SystemExit):
        code = made(repr, error.code)
        return f"the crew's code ended its process with sys.exit({code}){at}", "Return instead of exiting."
    if isinstance(error, ModuleNotFoundError) and error.name and not of_the_project(error.name, root):
        return missing_package(error.name, place)
    return f"{type(error).__name__}: {text}{at}", remedy(error)


def own_text(error: BaseException, root: Path) -> str:
    """Without the place that a SyntaxError of the project's code tells in its text, as it is told beside it."""
    return error.msg if isinstance(error, SyntaxError) and place_of_syntax(error, root) else text_of(error)


def text_of(error: BaseException) -> str:
    """An exception's text; for pydantic's, what was wrong with which field, without the values."""
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(f"{type(one).__name__}: {text_of(one)}" for one in error.exceptions)
    if type(error).__name__ == "ValidationError" and callable(getattr(error, "errors", None)):
        return made(lambda invalid: "; ".join(map(field_problem, cast("Any", invalid).errors())), error)
    return made(str, error) or NOT_SAID


def made(make: Callable[[Any], str], value: object) -> str:
    try:
        return make(value)
    except Exception:  # noqa: BLE001 - a method of crew code: whatever it raises, the error beside it is to be told
        return NOT_SAYABLE


def field_problem(problem: dict[str, Any]) -> str:
    return ": ".join(filter(None, [".".join(map(str, problem["loc"])), problem["msg"]]))


def remedy(error: BaseException) -> str:
    if unset := unset_variable(error):
        return f"Set {unset} among the crew's variables."
    for cause in chain(error):
        if isinstance(cause, NobodyAnswers):
            return cause.hint
        if isinstance(cause, EOFError) and made(str, cause) == INPUT_READ:
            return "A kickoff has no standard input, and no one to answer."
        for kind in type(cause).__mro__:
            if kind.__name__ in REMEDIES:
                return REMEDIES[kind.__name__]
    keys = KEY_NAME.findall(made(str, error))
    return f"Set {keys[0]} among the crew's variables." if keys else ""


def unset_variable(error: BaseException) -> str | None:
    """The name in os.environ[name] when that was what failed."""
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
    """What its code raised, where a framework tells of that in words of its own."""
    return next((cause for cause in chain(error) if where(cause, root)), None)


def missing_package(name: str, place: str) -> tuple[str, str]:
    package = name.partition(".")[0]
    wanted_by = f" (imported at {place})" if place else ""
    message = f"the package {package!r} is not installed in {sys.executable}{wanted_by}"
    return message, f"Install it: {install_command(DISTRIBUTIONS.get(package, package))}"


def install_command(distribution: str) -> str:
    if importlib.util.find_spec("pip") is None or shutil.which("uv"):
        return f"uv pip install --python {sys.executable} {distribution}"
    return f"{sys.executable} -m pip install {distribution}"


def of_the_project(module: str, root: Path) -> bool:
    top = module.partition(".")[0]
    return any((folder / top).is_dir() or (folder / f"{top}.py").is_file() for folder in (root / "src", root))


def where(error: BaseException, root: Path) -> str:
    """The last line of the project's own code that took part: "src/pkg/crew.py:12", or "" when none did."""
    if isinstance(error, SyntaxError) and (place := place_of_syntax(error, root)):
        return place
    places = [place for place in frames(error.__traceback__, root) if place]
    return places[-1] if places else ""


def place_of_syntax(error: SyntaxError, root: Path) -> str:
    """Where the text is that is no Python; "" when that is none of the project's files."""
    named = inside(error.filename, root) if error.filename else None
    return "" if named is None else f"{named}:{error.lineno}"


def frames(trace: TracebackType | None, root: Path) -> Iterator[str]:
    for frame, line in traceback.walk_tb(trace):
        named = inside(frame.f_code.co_filename, root)
        if named is not None:
            yield f"{named}:{line}"


def inside(filename: str, root: Path) -> str | None:
    path = Path(filename)
    if not path.is_relative_to(root) or NOT_CODE_OF_THE_PROJECT & set(path.relative_to(root).parts):
        return None
    return str(path.relative_to(root))


def sentence(text: str) -> str:
    """Something can be said after it."""
    line = one_line(text)
    return line if line.endswith((".", "!", "?", "…")) else f"{line}."


def one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_LINE else f"{line[: LONGEST_LINE - 1]}…"
