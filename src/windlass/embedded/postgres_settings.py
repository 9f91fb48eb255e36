"""How the embedded PostgreSQL is set: for one small server, safe against a power cut, reached by one socket."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windlass.embedded.places import Places, write_whole
from windlass.embedded.socket_folder import PORT

if TYPE_CHECKING:
    from pathlib import Path

SETTINGS = """\
# Written by Windlass at each start. To change a setting for good, use ALTER SYSTEM as the user postgres.
include 'data/postgresql.conf'       # what initdb found out about this system: 100 connections, 128 MB, if it has room

fsync = on
full_page_writes = on
synchronous_commit = on
max_wal_size = 512MB
min_wal_size = 48MB
max_wal_senders = 2
max_logical_replication_workers = 0
io_method = sync                     # three processes less; what is read often is in memory
jit = off                            # costs more than it gives on short statements
max_parallel_workers_per_gather = 0  # the machine's cores are for the crews
max_worker_processes = 4
timezone = 'UTC'
log_timezone = 'UTC'
lc_messages = 'C'
log_line_prefix = '%m [%p] '
log_checkpoints = off
log_error_verbosity = terse          # the details of an error hold values of rows
log_min_error_statement = panic      # so does a statement
cluster_name = 'windlass'
"""
ACCESS = "local all all scram-sha-256\n"


def write_settings(places: Places) -> None:
    """Readable by the user that PostgreSQL runs as; there is nothing secret in them."""
    write_whole(places.settings, SETTINGS, 0o644)
    write_whole(places.access, ACCESS, 0o644)


def command(postgres: Path, places: Places, socket_folder: Path) -> list[str]:
    """What must hold whatever the files say is said here: PostgreSQL puts its command line above ALTER SYSTEM."""
    must = {
        "config_file": places.settings,
        "hba_file": places.access,
        "listen_addresses": "",
        "unix_socket_directories": f'"{socket_folder}"',
        "unix_socket_permissions": "0700",
        "port": PORT,
        "logging_collector": "off",
        "log_destination": "stderr",
    }
    return [str(postgres), "-D", str(places.data), *(f"--{name}={value}" for name, value in must.items())]
