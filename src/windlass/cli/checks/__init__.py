"""The checks of `windlass doctor`.

A check returns a finding of level `ok` or `warn`. It raises WindlassError for a fault that keeps Windlass from working.
The error's message describes the fault, and its hint describes how to fix it.
"""

from windlass.cli.checks.machine import Finding, Level, examine

__all__ = ["Finding", "Level", "examine"]
