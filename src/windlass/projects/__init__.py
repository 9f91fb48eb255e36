"""Reads the files of a project: its kind, its options, its interpreter and its changes. It does not run the project."""

from windlass.projects.digest import digest, glance
from windlass.projects.interpreter import Interpreter, Interpreters, TrustedProjects
from windlass.projects.kinds import Recognised, recognise
from windlass.projects.options import Options

__all__ = ["Interpreter", "Interpreters", "Options", "Recognised", "TrustedProjects", "digest", "glance", "recognise"]
