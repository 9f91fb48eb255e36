"""Checks the YAML files of crewai projects without crewai. The server and the child share it."""
