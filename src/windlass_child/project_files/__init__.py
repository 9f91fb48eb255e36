"""Reads the files of a project without importing them. The server and the child share it."""
