"""What the server and its processes agree on: messages, their frames, leases, sizes of texts, the folder of a run."""
