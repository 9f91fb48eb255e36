import os
import time

STARTED = time.time()


def when() -> dict[str, float]:
    """Says when the first statement of this module ran and when this function was called, in Unix seconds."""
    return {"first_statement": STARTED, "called": time.time(), "process": os.getpid()}
