import os
import time

WRITE = b"x" * 1023 + b"\n"


def work(do: str):
    """Makes it hard for others, until it is ended: sleep, burn, flood, grow, give."""
    return globals()[do]()


def sleep():
    while True:
        time.sleep(3600)


def burn():
    """Two processes that count."""
    os.fork()
    number = 0
    while True:
        number += 1


def flood():
    """More than 10 MB a second."""
    while True:
        os.write(1, WRITE * 160)
        time.sleep(0.01)


def grow():
    held = []
    while True:
        held.append(bytearray(os.urandom(1 << 20)))


def give():
    """20 MB as JSON."""
    time.sleep(2)
    return "a line of words, 49 bytes of them, and so on ...\n" * (20 * 1024 * 1024 // 50)
