"""What `windlass doctor` looks at. A check returns what it found well or doubtful, and raises WindlassError for what
keeps Windlass from working: its message says what is wrong, its hint how to mend it.
"""

from windlass.cli.checks.finding import Finding, Level, examine

__all__ = ["Finding", "Level", "examine"]
