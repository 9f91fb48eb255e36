"""Reads the files of a project: its kind, its options, its interpreter and its changes. It does not run the project."""

from windlass.projects.digest import digest, glance
from windlass.projects.interpreter import Interpreter, Interpreters, TrustedProjects
from windlass.projects.kinds import Recognised, recognise
from windlass.projects.options import Options
from windlass.projects.served_code import ServedCode

__all__ = [
    "Interpreter",
    "Interpreters",
    "Options",
    "Recognised",
    "ServedCode",
    "TrustedProjects",
    "digest",
    "glance",
    "recognise",
]
