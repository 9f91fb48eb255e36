"""How long tests wait for what has to come."""

DEADLINE = 150.0
"""Seconds. What a test waits for comes within it on a machine with a load of 10, and only a fault takes as long."""
