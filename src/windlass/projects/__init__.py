"""A crew's source, as files: which kind of project it is, its interpreter, whether it changed. Nothing here runs it."""

from windlass.projects.digest import digest, glance
from windlass.projects.interpreter import interpreter_of
from windlass.projects.kinds import Recognised, recognise
from windlass.projects.options import Options

__all__ = ["Options", "Recognised", "digest", "glance", "interpreter_of", "recognise"]
