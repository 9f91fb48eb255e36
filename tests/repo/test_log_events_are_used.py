from __future__ import annotations

import re
from pathlib import Path

import pytest

import windlass
from windlass.log import EVENTS

pytestmark = pytest.mark.unit


SOURCE = Path(windlass.__file__).parent


def test_every_declared_event_is_logged_somewhere() -> None:
    code = "\n".join(path.read_text("utf-8") for path in SOURCE.rglob("*.py") if path.name != "log.py")
    named = set(re.findall(r'"([a-z_]+\.[a-z_]+)"', code))
    assert set(EVENTS) <= named | {"log.repeated"}  # which log.py writes of the others
