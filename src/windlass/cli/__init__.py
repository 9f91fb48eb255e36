"""The commands: each parses what it is given, calls wiring or a crew's API, and prints.

What a command needs is imported when it runs, so that `windlass --help` costs click and nothing else.
"""
