"""What runs in the crew's own interpreter: the standard library and the crew's framework, nothing else."""
