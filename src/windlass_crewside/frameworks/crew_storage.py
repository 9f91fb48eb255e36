"""Where crewai keeps knowledge: it decides on that when it is imported, which is before this child had its folder."""

from __future__ import annotations

import sys
from pathlib import Path

FROZEN = {"crewai.rag.chromadb": "", "crewai.rag.qdrant": "qdrant"}
"""Packages that hold a path under crewai's storage in modules of theirs, and its part behind that."""
MODULES = ("constants", "config")
NAME = "DEFAULT_STORAGE_PATH"


def storage_as_wanted() -> None:
    """Without it, all children of a zygote would share one store, and crews would find the knowledge of others."""
    imported = [(f"{package}.{name}", end) for package, end in FROZEN.items() for name in MODULES]
    found = [(sys.modules[name], end) for name, end in imported if hasattr(sys.modules.get(name), NAME)]
    if not found:
        return
    from crewai_core.paths import db_storage_path

    for module, end in found:
        setattr(module, NAME, str(Path(db_storage_path()) / end))
