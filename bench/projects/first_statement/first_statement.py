import time

STARTED = time.time()


def when() -> dict[str, float]:
    """Says when the first statement of this module ran, in Unix seconds."""
    return {"first_statement": STARTED}
