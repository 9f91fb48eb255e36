"""Zygotes and children: starts them, speaks with them, ends them, and makes each end an outcome. It knows no rows."""

from windlass.runner.ender import Ender
from windlass.runner.orders import Output, Preparing, Report, RunOrder
from windlass.runner.runner import Runner
from windlass.runner.tether import Tether
from windlass.runner.ways import Ways
from windlass_crewside.lease import boottime

__all__ = ["Ender", "Output", "Preparing", "Report", "RunOrder", "Runner", "Tether", "Ways", "boottime"]
