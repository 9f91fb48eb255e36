"""Measures Windlass against floors and a peer, in the same run, interleaved: `make bench`."""
