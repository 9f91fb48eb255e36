"""What a kickoff is: states and their moves, inputs, tasks, outcome. Values and pure functions, no I/O."""
