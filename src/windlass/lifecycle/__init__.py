"""The moves of a kickoff: accepted, claimed, run, settled, released, reaped. What holds them together is the worker's
loop.
"""
