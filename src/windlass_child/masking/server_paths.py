"""Replaces the server's paths in errors and warnings of deployed crews: their readers are on other machines."""

from __future__ import annotations

import os
import re
import sys
from functools import cached_property
from pathlib import Path
from typing import Any

from windlass_child.protocol.working_folder import WORK

DEPLOYED = re.compile(r"/[0-9a-f]{64}(?:/|$)")
"""The name of a deployed version's folder, which may be a copy, or the beginning of a path in it."""
OF_THE_SYSTEM = {"/", "/usr", "/usr/local"}
"""Prefixes of Python that are the same on most machines."""
PYTHON, PROJECT, WORKING = "the crew's Python", "the project's folder", "the working folder"
ANYWHERE = "..."
"""Stands for the path of another folder of the server: `.../site-packages/brew/pot.py`."""
IN_EVENTS = ("error", "message")
"""The members of events in which libraries write texts of exceptions and warnings."""


def is_deployed(root: Path | str) -> bool:
    """Returns whether the folder of a project is that of a deployed version, or a folder in it."""
    return DEPLOYED.search(str(root)) is not None


class ServerPaths:
    """The paths of the server that texts about a crew may contain. Those of a crew that is not deployed stay: its
    readers are on the same machine.

    `root` is the folder of the project, `interpreter` that of its environment, `folder` the folder of the run.
    """

    def __init__(self, root: str, interpreter: str, folder: str = "") -> None:
        self._root = root
        self._interpreter = interpreter
        self._folder = folder

    def out_of(self, text: str) -> str:
        """Returns the text without these paths. Paths in the project and in the working folder begin there."""
        if "/" not in text or not is_deployed(self._root):
            return text
        return self._pattern.sub(self._instead, text)

    def out_of_event(self, payload: dict[str, Any]) -> dict[str, Any]:
        texts = {name: self.out_of(text) for name in IN_EVENTS if isinstance(text := payload.get(name), str)}
        return {**payload, **texts} if texts else payload

    @cached_property
    def _words(self) -> dict[str, str]:
        words = {self._root: PROJECT, self._interpreter: PYTHON}
        if self._folder:
            words |= {f"{self._folder}/{WORK}": WORKING, self._folder: ANYWHERE}
        environments = (Path(self._interpreter).parents[1], Path(sys.prefix), Path(sys.base_prefix))
        # the files of versions are in a folder of the server, beside their environments
        for place in (*environments, Path(__file__).parents[2], Path(self._root).parents[1]):
            words.setdefault(str(place), ANYWHERE)
        found = {os.path.realpath(path): word for path, word in words.items()} | words
        return {path: word for path, word in found.items() if path not in OF_THE_SYSTEM}

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        paths = sorted(self._words, key=len, reverse=True)
        return re.compile(rf"(?<![\w.-])({'|'.join(map(re.escape, paths))})(?![\w-])(/?)")

    def _instead(self, match: re.Match[str]) -> str:
        word = self._words[match[1]]
        return "" if match[2] and word in (PROJECT, WORKING) else f"{word}{match[2]}"
