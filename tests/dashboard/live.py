"""A real `windlass serve` with a deployed function of two versions, for tests in which something runs."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cli.the_command import Command, ForkedCommand
from projects_for_tests.making import written

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PROJECT = '[project]\nname = "tea"\n[tool.windlass]\nentrypoint = "steep:steep"\n'
STEEP = '''import os
import time
from typing import Literal


def steep(leaf: str, kind: Literal["green", "black"] = "green", minutes: int = 3, wait_for: str = "") -> str:
    """Makes tea. It waits for a file, so that a test sees it run."""
    print("the water boils")
    while wait_for and not os.path.exists(wait_for):
        time.sleep(0.05)
    if leaf == "nettle":
        raise ValueError("nettle is no tea; use a leaf of Camellia")
    return f"# {minutes} minutes\\n\\n**{kind}** {leaf} tea"
'''
FIRST = STEEP.replace("**{kind}**", "{kind}")
"""The first version, which prints nothing bold."""


@dataclass
class LiveServer:
    """A server with the crew `tea`. `folder` is one that its runs can read."""

    url: str
    folder: Path
    windlass: Command

    @classmethod
    @contextmanager
    def started(cls, folder: Path) -> Iterator[LiveServer]:
        windlass = ForkedCommand(folder)
        with windlass.started("serve", "--port", "0") as server:
            url = server.wait_for("Address").split()[-1]
            server.wait_for("Ctrl-C stops")
            for code in (FIRST, STEEP):
                project = written(folder / "tea", {"pyproject.toml": PROJECT, "steep.py": code})
                deployed = windlass("deploy", str(project))
                assert deployed.code == 0, deployed
            yield cls(url, folder, windlass)
            server.interrupt()
            assert server.end() == 0, server.err

    def link(self, name: str = "owner") -> str:
        """The path of a link that signs the user in."""
        ended = self.windlass("admin", "users", "link", name, "--json")
        assert ended.code == 0, ended
        return str(json.loads(ended.out)["url"]).removeprefix(self.url)
