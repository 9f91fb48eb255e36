"""Settings of the embedded PostgreSQL: for one small server, safe against a power cut, reachable by one socket."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windlass.embedded_postgres.paths import Paths, write_whole
from windlass.embedded_postgres.socket_folder import PORT

if TYPE_CHECKING:
    from pathlib import Path

SETTINGS = """\
# Windlass writes this file at each start. To change a setting permanently, use ALTER SYSTEM as the user postgres.
include 'data/postgresql.conf'       # what initdb chose for this system: 100 connections and 128 MB if there is room

fsync = on
full_page_writes = on
synchronous_commit = on
max_wal_size = 512MB
min_wal_size = 48MB
max_wal_senders = 2
max_logical_replication_workers = 0
io_method = sync                     # three processes fewer; data that is often read is in memory
jit = off                            # costs more than it saves on short statements
max_parallel_workers_per_gather = 0  # the cores of the machine are for the crews
max_worker_processes = 4
timezone = 'UTC'
log_timezone = 'UTC'
lc_messages = 'C'
log_line_prefix = '%m [%p] '
log_checkpoints = off
log_error_verbosity = terse          # the details of an error contain values of rows
log_min_error_statement = panic      # a statement contains values too
cluster_name = 'windlass'
"""
ACCESS = "local all all scram-sha-256\n"


def write_settings(places: Paths) -> None:
    """Writes the files so that the user that PostgreSQL runs as can read them. They contain no secret."""
    write_whole(places.settings, SETTINGS, 0o644)
    write_whole(places.access, ACCESS, 0o644)


def command(postgres: Path, places: Paths, socket_folder: Path) -> list[str]:
    """Returns the command line of PostgreSQL, with the settings that nobody may change.

    The command line has precedence over the settings files and ALTER SYSTEM.
    """
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
