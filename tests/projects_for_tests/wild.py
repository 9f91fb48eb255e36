"""A function that leaves processes, dies and blocks in the ways that the crew side must stand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from projects_for_tests.making import function_project
from windlass_child.protocol.messages import Project

if TYPE_CHECKING:
    from pathlib import Path

CODE = r'''
import ctypes, os, re, select, signal, socket, subprocess, sys, threading, time

sys.setrecursionlimit(max(sys.getrecursionlimit(), 1000))


def run(do="echo", **inputs):
    return globals()["do_" + do](inputs)


def tell(word, *numbers):
    os.write(1, (" ".join([word, *map(str, numbers)]) + "\n").encode())


def twice_forked(work):
    """Runs it in a process whose parent has ended, in a session of its own."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            work()
            os._exit(0)
        os._exit(0)


def wait(*_):
    while True:
        time.sleep(600)


def do_echo(inputs):
    return inputs


def do_sleep(inputs):
    tell("asleep", os.getpid())
    time.sleep(600)


def do_sleep_by_seconds(inputs):
    tell("asleep", os.getpid())
    while True:
        time.sleep(0.05)


def do_leave(inputs):
    """Two daemons that hold its output: one of them deaf to SIGTERM."""
    told, telling = os.pipe()

    def daemon():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        tell("daemon", os.getpid())
        os.write(telling, b".")
        wait()

    twice_forked(daemon)
    os.read(told, 1)  # else it may be ended before it has told its number
    other = subprocess.Popen(["sleep", "600"], start_new_session=True)
    tell("other", other.pid)
    if inputs.get("stay"):
        wait()
    time.sleep(inputs.get("before_end", 0))
    return "left"


def do_leave_tree(inputs):
    """A daemon with a process below it, each in a session of its own."""
    def daemon():
        below = subprocess.Popen(["sleep", "600"], start_new_session=True)
        tell("tree", os.getpid(), below.pid)
        wait()

    twice_forked(daemon)
    wait()


def do_bomb(inputs):
    """Every process starts others for as long as it lives, each in a session of its own, up to a bound for all."""
    import resource
    resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
    counter = os.open(inputs["counter"], os.O_WRONLY | os.O_APPEND)
    while os.fstat(counter).st_size < inputs["bound"]:
        os.write(counter, b".")
        if os.fork() == 0:
            os.setsid()
            os.write(counter, b".")
    wait()


def do_bomb_for_ever(inputs):
    """Without end, and in sessions of their own: bounded by RLIMIT_NPROC and by seconds of CPU."""
    import resource
    resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
    resource.setrlimit(resource.RLIMIT_NPROC, (inputs["bound"], inputs["bound"]))
    while True:
        try:
            if os.fork() == 0:
                os.setsid()
        except BlockingIOError:
            continue


def do_chain(inputs):
    """Each process starts the next and ends: none lives long enough to be found by its number."""
    def chain():
        end = time.monotonic() + 20
        while time.monotonic() < end:
            if os.fork():
                os._exit(0)
            time.sleep(0.001)

    twice_forked(chain)
    tell("chained")
    wait()


def do_exit(inputs):
    os._exit(inputs["code"])


def do_signal(inputs):
    os.kill(os.getpid(), inputs["number"])


def do_segfault(inputs):
    ctypes.string_at(0)


def do_abort(inputs):
    os.abort()


def do_recurse(inputs):
    return do_recurse(inputs)


def do_recurse_in_c(inputs):
    sys.setrecursionlimit(10**9)
    deep = None
    for _ in range(10**6):
        deep = [deep]
    return repr(deep)


def do_raise(inputs):
    raise LookupError("nothing there")


def do_raise_much(inputs):
    raise LookupError("x" * 1_000_000)


def do_garbage(inputs):
    for number in range(3, 256):
        try:
            os.write(number, b"\xff" * 64)
        except OSError:
            continue
    time.sleep(600)


def do_close_descriptors(inputs):
    """All that it didn't open; then what it opens itself has their numbers."""
    os.closerange(3, 100)
    if inputs.get("open"):
        pairs = [socket.socketpair() for _ in range(20)]
        threading.Thread(target=repeat_what_comes, args=(pairs,), daemon=True).start()
    return "closed"


def repeat_what_comes(pairs):
    ready, _, _ = select.select([end for pair in pairs for end in pair], [], [])
    os.write(1, ready[0].recv(100))


def do_close_output(inputs):
    sys.stdout.close()
    os.close(1)
    os.close(2)
    return "closed"


def do_flood(inputs):
    line, end = b"x" * 1023 + b"\n", time.monotonic() + inputs["seconds"]
    written = 0
    while time.monotonic() < end:
        written += os.write(1, line * 160)
        time.sleep(0.015)
    return written


def do_threads(inputs):
    for _ in range(3):
        threading.Thread(target=wait).start()
    return "threads"


def do_block_python(inputs):
    tell("blocked")
    time.sleep(600)


def do_block_in_c(inputs):
    tell("blocked")
    re.match(r"(a+)+$", "a" * 64 + "b")


def do_ask(inputs):
    return input("your name? ")


def do_ask_softly(inputs):
    try:
        return input()
    except EOFError:
        return "no one"


def do_self(inputs):
    status = dict(line.split(":\t") for line in open("/proc/self/status").read().splitlines() if ":\t" in line)
    libc = ctypes.CDLL(None)
    import resource
    return {
        "no_new_privs": status["NoNewPrivs"],
        "dumpable": libc.prctl(3, 0, 0, 0, 0),
        "core": resource.getrlimit(resource.RLIMIT_CORE),
        "oom": open("/proc/self/oom_score_adj").read().strip(),
        "nice": os.nice(0),
        "crewai": "crewai" in sys.modules,
        "tools": [name for name in sys.modules if name.partition(".")[0] in {"crewai_tools", "lxml", "pymupdf"}],
        "session": os.getsid(0) == os.getpid(),
        "windlass": "windlass" in sys.modules,
        "argv": sys.argv,
        "utf8": sys.flags.utf8_mode,
    }


def do_environment(inputs):
    return dict(os.environ)


def do_environment_at_start(inputs):
    """What the kernel has of it: replacing os.environ leaves this as it was."""
    return open("/proc/self/environ").read().split(chr(0))


def do_descriptors(inputs):
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{name}").split(":")[0].rpartition("/")[2])
        except FileNotFoundError:  # the one that listed them
            continue
    return sorted(found)


def do_look(inputs):
    found = {}
    for path in inputs["paths"]:
        try:
            with open(path, "rb") as file:
                file.read(1)
            found[path] = "read"
        except OSError as error:
            found[path] = error.strerror
    return found


def do_many(inputs):
    return "é" * inputs["characters"]
'''


def wild(folder: Path) -> Project:
    function_project(folder, CODE)
    return Project("function", str(folder), "work:run")
