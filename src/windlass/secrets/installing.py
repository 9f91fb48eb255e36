"""Names the command that adds an extra of Windlass to this installation, whichever program made it."""

from __future__ import annotations

import json
import sys
from importlib import metadata
from pathlib import Path


def install_command(extra: str) -> str:
    """Returns the command for the environment of this interpreter."""
    return command_for(extra, Path(sys.prefix), _direct_url())


def command_for(extra: str, prefix: Path, direct_url: str | None) -> str:
    """Returns the command for an environment at `prefix`. `direct_url` is the record of where Windlass came from.

    The command has no path of the machine, because clients of the API see it too.
    """
    if _is_editable(direct_url):
        return f"in the clone of Windlass: .venv/bin/uv pip install --python .venv/bin/python -e '.[{extra}]'"
    if (prefix / "uv-receipt.toml").is_file():
        return f"uv tool install --reinstall 'windlass[{extra}]'"
    if (prefix / "pipx_metadata.json").is_file():
        return f"pipx install --force 'windlass[{extra}]'"
    if _made_by_uv(prefix):
        return f"uv pip install 'windlass[{extra}]'"
    return f"python -m pip install 'windlass[{extra}]'"


def _direct_url() -> str | None:
    try:
        return metadata.distribution("windlass").read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        return None


def _is_editable(direct_url: str | None) -> bool:
    try:
        return bool(json.loads(direct_url or "{}").get("dir_info", {}).get("editable"))
    except (ValueError, AttributeError):
        return False


def _made_by_uv(prefix: Path) -> bool:
    try:
        lines = (prefix / "pyvenv.cfg").read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return False
    return any(line.startswith("uv =") for line in lines)
