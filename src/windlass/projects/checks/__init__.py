"""Finds all errors of a project at once (docs/check.md). This part reads its files and runs none of its code."""

from windlass.projects.checks.finding import Finding, Level, counts, from_json, in_order
from windlass.projects.checks.json_crew import declared_crew, located
from windlass.projects.checks.pyproject import declared_project

__all__ = ["Finding", "Level", "counts", "declared_crew", "declared_project", "from_json", "in_order", "located"]
