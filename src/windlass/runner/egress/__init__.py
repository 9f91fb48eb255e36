"""The connections of runs to other hosts: what is permitted, the answers to their look-ups, and the forwarding."""
