"""Starts, supervises and ends zygotes and children, and turns each end into an outcome. Has no access to the
database.
"""

from windlass.runner.run_context import LeaseHandle, Terminator
from windlass.runner.run_spec import Answered, Output, Preparing, Report, RunnerConfig, RunSpec
from windlass.runner.runner import Runner
from windlass_child.protocol.lease import boottime

__all__ = [
    "Answered",
    "LeaseHandle",
    "Output",
    "Preparing",
    "Report",
    "RunSpec",
    "Runner",
    "RunnerConfig",
    "Terminator",
    "boottime",
]
