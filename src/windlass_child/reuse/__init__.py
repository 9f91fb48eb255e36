"""Several runs of one crew in one process, one after the other (`Run.reuse`).

The runs share what the code keeps in its modules, as the requests of a web worker do. docs/concepts/processes.md has
the rules. The kinds of project call `baseline.imported` and `baseline.refuse`; child.py calls `runs.run_several`.
"""

# See docs/decisions/child.md#a-reused-child-is-reset-or-ended
