import time


def prints(lines: int, pause: float) -> str:
    """Prints the time, so many times."""
    for _ in range(lines):
        print(time.time(), flush=True)
        time.sleep(pause)
    return "done"
