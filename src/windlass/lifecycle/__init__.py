"""Moves a kickoff through its life: accept, claim, run, settle, release, reap. The worker's loops drive these moves."""
