from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from windlass.secrets.installing import command_for

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.unit


EDITABLE = '{"dir_info": {"editable": true}, "url": "file:///srv/windlass"}'


@pytest.mark.parametrize(
    ("file", "text", "direct_url", "command"),
    [
        ("pyvenv.cfg", "home = /usr/bin\n", None, "python -m pip install 'windlass[aws]'"),
        ("pyvenv.cfg", "home = /usr/bin\nuv = 0.9.1\n", None, "uv pip install 'windlass[aws]'"),
        ("uv-receipt.toml", "", None, "uv tool install --reinstall 'windlass[aws]'"),
        ("pipx_metadata.json", "{}", "no JSON", "pipx install --force 'windlass[aws]'"),
        (
            "pyvenv.cfg",
            "uv = 0.9.1\n",
            EDITABLE,
            "in the clone of Windlass: .venv/bin/uv pip install --python .venv/bin/python -e '.[aws]'",
        ),
    ],
)
def test_the_command_fits_the_installation(
    tmp_path: Path, file: str, text: str, direct_url: str | None, command: str
) -> None:
    (tmp_path / file).write_text(text)
    assert command_for("aws", tmp_path, direct_url) == command
