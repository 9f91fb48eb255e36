"""Starts, supervises and ends zygotes and children, and turns each end into an outcome. Has no access to the
database.
"""

from windlass.runner.run_context import LeaseHandle, Terminator
from windlass.runner.run_spec import Output, Preparing, Report, ResultSent, RunnerConfig, RunSpec
from windlass.runner.runner import Runner
from windlass_child.protocol.lease import boottime

__all__ = [
    "LeaseHandle",
    "Output",
    "Preparing",
    "Report",
    "ResultSent",
    "RunSpec",
    "Runner",
    "RunnerConfig",
    "Terminator",
    "boottime",
]
