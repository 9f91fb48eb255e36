"""Reads the files of a project: its kind, its options, its interpreter and its changes. It does not run the project."""

from windlass.projects.digest import digest, glance
from windlass.projects.interpreter import TrustedProjects, interpreter_of
from windlass.projects.kinds import Recognised, recognise
from windlass.projects.options import Options

__all__ = ["Options", "Recognised", "TrustedProjects", "digest", "glance", "interpreter_of", "recognise"]
