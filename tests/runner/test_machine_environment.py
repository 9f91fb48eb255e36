from __future__ import annotations

import pytest

from windlass.runner.run_spec import machine_environment

pytestmark = pytest.mark.unit


def test_only_what_is_of_the_machine_is_kept() -> None:
    server = {
        "PATH": "/bin",
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "WINDLASS_MASTER_KEY": "secret",
        "OPENAI_API_KEY": "secret",
        "PYTHONPATH": "/server",
        "VIRTUAL_ENV": "/server",
    }
    assert machine_environment(server) == {"PATH": "/bin", "LC_ALL": "C.UTF-8", "TZ": "UTC"}
