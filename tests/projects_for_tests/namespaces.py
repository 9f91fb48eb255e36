"""Tests of namespaces are skipped on a machine that permits none to crews, as a container of Docker does."""

from __future__ import annotations

import functools

import pytest

from windlass.runner.crew_account import crew_account
from windlass.runner.namespaces import refused


@functools.cache
def why_refused() -> str:
    crews = crew_account(None)
    return refused(crews, crews.uid if crews else None)


def need_namespaces() -> None:
    """Skips the test on a machine without them."""
    if why := why_refused():
        pytest.skip(f"this machine permits no namespaces: {why}")
