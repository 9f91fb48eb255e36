"""What the crews and functions of the tests do when asked: each of their projects gets a copy of this file."""

import atexit
import importlib.util
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time

LONG = 9_000


def do(inputs):
    return globals()["do_" + inputs.get("do", "echo")](inputs)


def do_echo(inputs):
    return inputs


def do_environment(inputs):
    return dict(os.environ)


def do_folder(inputs):
    with open("written.txt", "w") as file:
        file.write("relative to the folder")
    return {
        "folder": os.getcwd(),
        "temporary": tempfile.gettempdir(),
        "storage": os.environ["CREWAI_STORAGE_DIR"],
        "home": os.environ["HOME"],
        "in_home": os.listdir(os.path.expanduser("~")),
        "stdin": sys.stdin.read(),
        "mode": oct(os.stat(os.getcwd()).st_mode & 0o777),
        "group": os.getpgid(0) == os.getpid() == os.getsid(0),
    }


def do_lines(inputs):
    print("one")
    print("two é")
    os.write(1, b"not \xff utf-8\n")
    print("x" * LONG)
    subprocess.run(["echo", "from a program"], check=True)
    print("to standard error", file=sys.stderr)
    sys.stdout.write("without an end")
    return "written"


def do_fail(inputs):
    raise ValueError("it could not be done\nwith " + os.environ.get("SOME_API_KEY", "nothing"))


def do_exit(inputs):
    os._exit(3)


def do_sys_exit(inputs):
    sys.exit("enough")


def do_sleep(inputs):
    other = subprocess.Popen(["sleep", "600"])
    print(f"asleep {os.getpid()} {other.pid}")
    time.sleep(600)


def do_leave_process(inputs):
    other = subprocess.Popen(["sleep", "600"], start_new_session=True)
    return other.pid


def do_leave_thread(inputs):
    threading.Thread(target=time.sleep, args=(600,)).start()
    return "left"


def do_big(inputs):
    return "ü" * 1_000_000


def do_garbage(inputs):
    for number in range(3, 100):
        try:
            other = socket.socket(fileno=os.dup(number))
        except OSError:
            continue
        other.send((16).to_bytes(4, "big") + b"\xff" * 16)
    time.sleep(600)


def do_paths(inputs):
    return {"path": sys.path, "windlass": "windlass" in sys.modules, "argv": sys.argv}


def do_fork(inputs):
    pid = os.fork()
    if pid == 0:
        print("forked")
        os._exit(0)
    os.waitpid(pid, 0)
    return "waited"


def do_meet(inputs):
    open(inputs["mine"], "w").close()
    deadline = time.monotonic() + 20
    while not os.path.exists(inputs["theirs"]):
        assert time.monotonic() < deadline, "the other one did not come"
        time.sleep(0.01)
    return "met"


def do_register_exit(inputs):
    atexit.register(print, "exit handler")


def do_importable(inputs):
    names = ("windlass", "pydantic", "channel", "windlass_child")
    return {name: importlib.util.find_spec(name) is not None for name in names}


def do_descriptors(inputs):
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{name}"))
        except FileNotFoundError:  # the descriptor that listed them
            continue
    return found
