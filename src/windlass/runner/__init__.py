"""Zygotes and children: starts them, speaks with them, ends them, and makes each end an outcome. It knows no rows."""

from windlass.runner.orders import Output, Report, RunOrder
from windlass.runner.runner import Runner

__all__ = ["Output", "Report", "RunOrder", "Runner"]
