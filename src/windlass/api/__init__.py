"""The crew API over HTTP: requests become calls of the lifecycle, answers and errors become bodies."""
