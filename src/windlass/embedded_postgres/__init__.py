"""PostgreSQL from a wheel: its start, supervision, end, backup and restore. No other PostgreSQL has to be installed."""
