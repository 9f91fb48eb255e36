"""A project whose code writes frames of its own to the socket that its process reports on."""

from __future__ import annotations

CODE = '''
import json, os, socket, stat, struct, time


def run(do="echo", **inputs):
    return globals()["do_" + do](**inputs)


def do_echo(**inputs):
    return "echo"


def do_large(size):
    return "x" * size


def channel():
    """The socket of this process; it has one."""
    for name in os.listdir("/proc/self/fd"):
        try:
            found = stat.S_ISSOCK(os.fstat(int(name)).st_mode)
        except OSError:
            continue
        if found:
            return socket.socket(fileno=os.dup(int(name)))


def wait_for_the_end():
    while True:
        time.sleep(0.05)


def frame(head, *parts):
    body = b"".join([json.dumps(head).encode() if isinstance(head, dict) else head, *parts])
    return struct.pack("!I", len(body)) + body


def with_parts(head, **parts):
    head["parts"] = {name: len(part) for name, part in parts.items()}
    return frame(head, b"\\n", *parts.values())


def started(position, key):
    return {"is": "TaskStarted", "position": position, "key": key, "name": "same", "agent": None, "at": 1}


def ended(position):
    return {"is": "TaskEnded", "position": position, "state": "completed", "at": 1}


def do_brackets(size):
    """One event with this many bytes of empty lists."""
    lists = b",".join([b"[]"] * (size // 3))
    channel().sendall(frame(b'{"is":"Event","type":"a","at":1,"payload":{"a":[' + lists + b"]}}"))
    wait_for_the_end()


def do_brackets_apart(kind, size, beginning=""):
    lists = beginning.encode() + b"[" + b",".join([b"[]"] * (size // 3)) + b"]"
    heads = {
        "output": ended(0),
        "payload": {"is": "Event", "type": "a", "at": 1},
        "manifest": {"is": "Inspected"},
        "structured": {"is": "Succeeded", "output": ""},
    }
    channel().sendall(with_parts(heads[kind], **{kind: lists}))
    wait_for_the_end()


def do_deep():
    deep = b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    channel().sendall(with_parts({"is": "Event", "type": "a", "at": 1}, payload=deep))
    wait_for_the_end()


def do_half(size):
    """Announces a large message, and sends no more."""
    whole = with_parts(ended(0), output=b'"' + b"x" * size + b'"')
    channel().sendall(whole[: size // 2])
    wait_for_the_end()


def do_outputs(count, size):
    """As many task outputs of this size."""
    to, text = channel(), b'"' + b"x" * size + b'"'
    for position in range(1, count + 1):
        to.sendall(frame(started(position, f"k{position}")))
        to.sendall(with_parts(ended(position), output=text))
    return "sent"


def do_store_and_fail(count, size, output_elsewhere):
    """Leaves as many journal entries of this size to the next attempt; `output_elsewhere` as outputs of tasks."""
    if output_elsewhere:
        do_outputs(count, size)
    to, record = channel(), b'"' + b"x" * (1 if output_elsewhere else size) + b'"'
    for number in range(1, count + 1):
        entry = {"is": "JournalAppend", "number": number, "key": f"k{number}"}
        if output_elsewhere:
            entry |= {"position": number, "output_elsewhere": True}
        to.sendall(with_parts(entry, record=record))
    raise ValueError("start me again")


def do_inline_outputs(count, size):
    """The same, as one JSON value each."""
    to, text = channel(), "x" * size
    for position in range(1, count + 1):
        to.sendall(frame(started(position, f"k{position}")))
        to.sendall(frame({**ended(position), "output": text}))
    return "sent"


def do_records(count):
    """As many tasks of one name."""
    to = channel()
    for first in range(0, count, 500):
        to.sendall(b"".join(
            frame(started(position, "k")) for position in range(first, min(first + 500, count))
        ))
    return "sent"


def do_repeat(count, message):
    to = channel()
    to.sendall(frame(message) * count)
    wait_for_the_end()


def do_say(message):
    channel().sendall(frame(message))
    return "said"
'''
