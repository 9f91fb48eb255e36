"""Databases of flows' states that `@persist` opens when the project's modules are imported.

They are in crewai's storage, in the folder that the modules were imported in: that of a zygote, or of an earlier run of
the process. The run has an empty file there in its own folder.
"""

from __future__ import annotations

import gc
import sys
from typing import Any

opened: list[Any] = []


def note() -> None:
    """Notes those that are open now."""
    kind = getattr(sys.modules.get("crewai.flow.persistence.sqlite"), "SQLiteFlowPersistence", None)
    opened[:] = [one for one in gc.get_objects() if type(one) is kind] if kind else []


def make_tables() -> None:
    for one in opened:
        one.init_db()
