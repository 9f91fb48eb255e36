import json
import os
import socket
import stat
import struct
import time

WRITE = b"x" * 1023 + b"\n"


def work(do: str):
    """Makes it hard for others, until it is ended: sleep, burn, flood, grow, give, hostile."""
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


def give_60_mb():
    return "a line of words, 49 bytes of them, and so on ...\n" * (60_000_000 // 50)


def hostile():
    """Writes frames of its own to the socket that its process reports on."""
    return brackets() if os.getpid() % 2 else outputs()


def brackets():
    """One event of 64 MB of empty lists."""
    lists = b",".join([b"[]"] * (64 * 1024 * 1024 // 3))
    channel().sendall(frame(b'{"is":"Event","type":"a","at":1,"payload":{"a":[' + lists + b"]}}"))
    sleep()


def outputs():
    """800 task outputs of 1 MB, for as long as the server takes them."""
    to, text = channel(), b'"' + b"x" * (1024 * 1024 - 2) + b'"'
    for position in range(1, 801):
        name = f"k{position}"
        begin = {"is": "TaskStarted", "position": position, "key": name, "name": name, "agent": None, "at": 1}
        end = {"is": "TaskEnded", "position": position, "state": "completed", "at": 1, "parts": {"output": len(text)}}
        to.sendall(frame(json.dumps(begin).encode()))
        to.sendall(frame(json.dumps(end).encode(), b"\n", text))
    return "sent"


def channel():
    """The socket of this process; it has one."""
    for name in os.listdir("/proc/self/fd"):
        try:
            found = stat.S_ISSOCK(os.fstat(int(name)).st_mode)
        except OSError:
            continue
        if found:
            return socket.socket(fileno=os.dup(int(name)))
    raise RuntimeError("this process has no socket")


def frame(*parts):
    body = b"".join(parts)
    return struct.pack("!I", len(body)) + body
