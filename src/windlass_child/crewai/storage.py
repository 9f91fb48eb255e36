"""Sets the folder in which crewai stores knowledge.

crewai decides on the folder at import, and the zygote imports it before the child has its own folder.
"""

from __future__ import annotations

import sys
from pathlib import Path

FROZEN = {"crewai.rag.chromadb": "", "crewai.rag.qdrant": "qdrant"}
"""Packages with a module that holds a path in crewai's storage, and the last part of that path."""
MODULES = ("constants", "config")
NAME = "DEFAULT_STORAGE_PATH"


def storage_as_wanted() -> None:
    """Sets crewai's storage paths for this child.

    Otherwise all children of a zygote would share one store, and crews would read the knowledge of other crews.
    """
    imported = [(f"{package}.{name}", end) for package, end in FROZEN.items() for name in MODULES]
    found = [(sys.modules[name], end) for name, end in imported if hasattr(sys.modules.get(name), NAME)]
    if not found:
        return
    from crewai_core.paths import db_storage_path

    for module, end in found:
        setattr(module, NAME, str(Path(db_storage_path()) / end))
