import time

STARTED = time.time()

import socket  # noqa: E402


def run(port: int | None = None) -> dict[str, float]:
    """Returns when the first statement of this module ran, in Unix seconds. With `port`, reads all that it sends."""
    if port is None:
        return {"first_statement": STARTED}
    begun, size = time.perf_counter(), 0
    with socket.create_connection(("127.0.0.1", port)) as source:
        while data := source.recv(1 << 20):
            size += len(data)
    return {"seconds": time.perf_counter() - begun, "bytes": size}
