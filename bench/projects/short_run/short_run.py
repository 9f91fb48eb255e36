import time


def work(seconds: float = 0.2) -> float:
    """Takes so many seconds."""
    time.sleep(seconds)
    return seconds
