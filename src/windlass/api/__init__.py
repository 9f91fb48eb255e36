"""The HTTP API of crews. It turns requests into calls of the lifecycle, and results and errors into responses."""
