"""A function that uses up what it is asked to use up, and ends, or does not, as it is asked to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from projects_for_tests.making import function_project

if TYPE_CHECKING:
    from pathlib import Path

CODE = '''
import ctypes, os, re, signal, subprocess, sys, time


def run(do="echo", **inputs):
    return globals()["do_" + do](inputs)


def do_echo(inputs):
    return inputs


def do_parent(inputs):
    return os.getppid()


def do_allocate(inputs):
    held = bytearray(os.urandom(1 << 20) * inputs["megabytes"])
    print("allocated", flush=True)
    time.sleep(600)


def do_allocate_below(inputs):
    code = f"import os, time; held = os.urandom(1 << 20) * {inputs['megabytes']}; time.sleep(600)"
    subprocess.run([sys.executable, "-c", code])


def do_allocate_in_forks(inputs):
    held = bytearray(os.urandom(1 << 20) * inputs["megabytes"])
    for _ in range(inputs["forks"]):
        if os.fork() == 0:
            time.sleep(600)
    time.sleep(inputs["seconds"])
    return "shared"


def do_start_processes(inputs):
    for _ in range(inputs["count"]):
        subprocess.Popen(["sleep", "600"])
    time.sleep(600)


def do_bomb(inputs):
    """Every process doubles itself, nine times; and each leaves its parent's group."""
    for _ in range(9):
        if os.fork() == 0:
            os.setsid()
    time.sleep(600)


def do_flood(inputs):
    line = b"x" * 1023 + b"\\n"
    written, end = 0, time.monotonic() + inputs["seconds"]
    until = inputs.get("until", "/no such file")
    while written < inputs.get("least", 0) or (time.monotonic() < end and not os.path.exists(until)):
        written += os.write(1, line * 64)
    return "flooded"


def do_print(inputs):
    for number in range(inputs["lines"]):
        print("line", number)
    return "printed"


def do_sleep(inputs):
    other = subprocess.Popen(["sleep", "600"])
    print("asleep", os.getpid(), other.pid, flush=True)
    time.sleep(600)


def do_ignore(inputs):
    """Neither it nor what it starts obeys a request to end; and what it starts leaves its group."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); print('ready', flush=True); time.sleep(600)"
    other = subprocess.Popen([sys.executable, "-c", code], start_new_session=True, stdout=subprocess.PIPE)
    other.stdout.readline()
    print("asleep", os.getpid(), other.pid, flush=True)
    while True:
        time.sleep(600)


def do_clean_up(inputs):
    def ended(*_):
        os.write(1, b"told to end\\n")  # it may come in the middle of a print
        os._exit(0)

    signal.signal(signal.SIGTERM, ended)
    print("asleep", os.getpid(), flush=True)
    while True:
        time.sleep(600)


def do_block_in_c(inputs):
    print("asleep", os.getpid(), flush=True)
    while True:
        ctypes.PyDLL(None).sleep(600)  # holds the interpreter's lock


def do_talk(inputs):
    print("asleep", os.getpid(), flush=True)
    while True:
        print("still here")
        time.sleep(0.02)


def do_succeed_at_last(inputs):
    def ended(*_):
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, ended)
    try:
        print("asleep", os.getpid(), flush=True)
        time.sleep(600)
    except KeyboardInterrupt:
        return "done after all"


def do_look(inputs):
    """What of the server's can be read, by name."""
    found = {}
    for name, path in inputs["paths"].items():
        try:
            with open(path, "rb") as file:
                found[name] = len(file.read(100))
        except OSError as error:
            found[name] = error.strerror
    return {"uid": os.getuid(), "home": os.environ.get("HOME"), "found": found}
'''


def able(folder: Path) -> Path:
    return function_project(folder, CODE)
