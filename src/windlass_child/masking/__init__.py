"""Masks the values of secrets, and paths of the server, in all that leaves a process that runs crew code."""
