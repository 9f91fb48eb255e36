"""Work on a server that needs no server: its database and keys, backups, the rotation of the master key."""
