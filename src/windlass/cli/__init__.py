"""The commands. Each one parses its arguments, calls `wiring` or a crew's API, and prints the answer.

A command imports its modules when it runs, so that `windlass --help` imports no library but click.
"""
