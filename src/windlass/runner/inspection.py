"""The end of an inspection: the manifest of a project, or the reason why the project could not be loaded.

`named_as` makes the errors of inspections and runs name the project's own folder, not the copy that crews use.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from windlass.errors import ChildLost, ProjectError
from windlass.kickoffs.inputs import InputsCheck
from windlass.kickoffs.manifest import Manifest
from windlass.kickoffs.outcome import Termination, words_for
from windlass.kickoffs.states import Reason, State
from windlass.runner.run_context import LeaseHandle, at_the_latest
from windlass.runner.zygote import FrameworkMissing
from windlass_child.masking.server_paths import is_deployed
from windlass_child.process.error_text import setup_command
from windlass_child.protocol.messages import Failed, Inspected

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from windlass.kickoffs.outcome import Ended
    from windlass.runner.run_context import Terminator
    from windlass_child.protocol.messages import Project

INSPECTION_SECONDS = 120.0


def while_loading(terminator: Terminator) -> AbstractContextManager[None]:
    """Ends a load that takes longer than INSPECTION_SECONDS."""
    error = f"the project was not loaded within {INSPECTION_SECONDS:.0f} s."
    too_late = Termination(State.TIMED_OUT, Reason.TIMED_OUT, error, at_once=True)
    return at_the_latest(terminator, INSPECTION_SECONDS, too_late, LeaseHandle())


def with_a_schema(manifest: Manifest) -> Manifest:
    """Returns the manifest. Raises ProjectError when its schema can't check the inputs of kickoffs."""
    try:
        InputsCheck.of(manifest.inputs_schema)
    except ValueError as error:
        raise ProjectError(f"{error}.", "Correct the schema of the inputs in the project.") from None
    return manifest


class LoadFailed(ProjectError):  # noqa: N818 - describes the project
    """Code of the project failed while it was loaded. `trace` has its own frames, if any."""

    def __init__(self, message: str, hint: str, trace: str) -> None:
        super().__init__(message, hint)
        self.trace = trace


def manifest_in(ended: Ended) -> Manifest:
    if ended.asked:
        late = ended.asked.reason is Reason.TIMED_OUT
        raise ProjectError(
            ended.asked.error, "Check the project for code that blocks when it is imported." if late else ""
        )
    if ended.over_limit:
        raise ProjectError(ended.over_limit)
    match ended.answer:
        case Inspected(manifest=manifest):
            return with_a_schema(Manifest.from_json(manifest))
        case Failed(message=message, hint=hint, trace=trace):
            raise LoadFailed(message, hint, trace)
    if ended.status is None:
        raise ChildLost("the process that inspects the project was lost.")
    raise ProjectError(f"while the project was loaded {words_for(ended.status)}")


def how_to_install(root: str) -> str:
    """Returns the hint for a framework that the project's interpreter does not have."""
    if is_deployed(root):
        return "Name it among the project's dependencies, and deploy the project again."
    return f"Make the project's environment: {setup_command(root)}"


@contextlib.contextmanager
def named_as(given: Project, used: Project) -> Iterator[None]:
    """Names in a ProjectError the command that installs a missing framework, and the project's own folder, not the
    copy that crews use.
    """
    try:
        yield
    except ProjectError as error:
        missing = isinstance(error, FrameworkMissing)
        if not missing and given.root == used.root:
            raise
        hint = how_to_install(given.root) if missing else error.hint
        raise ProjectError(error.message.replace(used.root, given.root), hint.replace(used.root, given.root)) from error
