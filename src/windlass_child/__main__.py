"""The start of each process for crews. The server starts it with its own interpreter and as its own user, with

    PYTHON -I -S __main__.py launch SOCKET USER GROUP TASKS NETWORK PLACES INTERPRETER ARGUMENT...

with "" for a user, group, bound or network that stays unchanged. NETWORK is "none" for a network that is empty, "local"
for no sockets of a network, or the port that sockets may connect to (windlass_child.process.sockets). PLACES are the
paths that the process may use beside those of the machine, as a JSON object (windlass_child.process.places), or "" for
all that its user may use. The process drops the rights that crews must not have, and executes the crew's INTERPRETER.
Code of its environment (.pth files, sitecustomize) runs only in that interpreter.

With `probe DOOR USER GROUP NEXT` it tries whether a process of this user may enter namespaces and become the user NEXT.
With `sockets` it prints how far this machine lets a process forbid itself sockets.

Windlass may be missing in that interpreter. As a zygote it is started with

    PYTHON -s -X utf8 __main__.py SOCKET PRELOAD [project]

SOCKET is the number of the socket's descriptor, and PRELOAD the framework to import ("" for none). With the word
`project` it imports a project's own modules too, and a `Preload` is the first message. A zygote starts a child that
shares nothing with it with the child's three descriptors (messages.Fork) and the zygote's process id:

    PYTHON -s -X utf8 __main__.py child SOCKET OUTPUT ERRORS ZYGOTE

Only this package becomes importable, and nothing else of the folder that it is installed in: the server's libraries
there must not shadow the crew's. The syntax is that of older Pythons, so that such a Python can report that it is too
old.
"""

import os
import sys

OLDEST = (3, 10)
PACKAGE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - before pathlib, which costs 10 ms


def main() -> int:
    sys.path[:] = [entry for entry in sys.path if os.path.realpath(entry or ".") != os.path.realpath(PACKAGE)]
    if sys.argv[1] == "launch":
        return launch(sys.argv[2:])
    if sys.argv[1] == "probe":
        return probe(*sys.argv[2:6])
    if sys.argv[1] == "sockets":
        return print_permitted()
    if sys.argv[1] == "child":
        be_child([int(number) for number in sys.argv[2:6]])
        return 0
    descriptor, preload = int(sys.argv[1]), sys.argv[2]
    close_all_but([descriptor])
    if sys.version_info < OLDEST:
        words = "{} is Python {}.{}; crews run on Python {}.{} or newer."
        refuse(descriptor, words.format(sys.executable, *sys.version_info[:2], *OLDEST))
        return 1
    begin()
    from windlass_child.process import hardening

    hardening.die_with_parent(descriptor)  # during its imports the zygote does not read its socket
    from windlass_child.process import zygote

    zygote.main(descriptor, preload or None, with_project="project" in sys.argv[3:])
    return 0


def launch(arguments: "list[str]") -> int:
    channel, uid, gid, tasks, network, own, *command = arguments
    close_all_but([int(channel)])  # uvloop starts processes with copies of all its inheritable descriptors
    make_importable()
    import json

    from windlass_child.process import hardening, places

    if tasks:
        hardening.bound_tasks(int(tasks))
    hardening.harden()
    if network and not without_network(channel, network):
        return 1
    if uid:
        hardening.become(int(uid), int(gid))
    files = {**places.of_the_machine(), **places.OF_A_ZYGOTE, **json.loads(own)} if own else None
    hardening.confine(files, port=int(network) if network.isdigit() else None)
    try:
        os.execv(command[0], command)  # noqa: S606 - no shell is wanted
    except OSError as error:
        words = "the interpreter {} can't be started: {}. Make its environment again."
        refuse(int(channel), words.format(command[0], error.strerror))
    return 1


def without_network(channel: str, network: str) -> bool:
    from windlass_child.process import namespaces, sockets

    try:
        if network != "none":
            sockets.forbid(tcp=network != "local")
            return True
        for listener in namespaces.enter(None, None, []):
            listener.close()
    except OSError as error:
        refuse(int(channel), f"the interpreter can't be separated from the network: {error.strerror or error}")
        return False
    return True


def probe(door: str, uid: str, gid: str, user: str) -> int:
    make_importable()
    from windlass_child.process import hardening, namespaces

    hardening.harden()
    if uid:
        hardening.become(int(uid), int(gid))
    return namespaces.main(int(door), int(user) if user else None)


def print_permitted() -> int:
    make_importable()
    from windlass_child.process import hardening, sockets

    hardening.harden()
    sys.stdout.write(sockets.permitted())
    return 0


def be_child(numbers: "list[int]") -> None:
    close_all_but(numbers[:3])
    begin()
    from windlass_child.process import child
    from windlass_child.process.output import prepare_output

    prepare_output()
    child.main(*numbers)


def begin() -> None:
    make_importable()
    from windlass_child.process import hardening

    hardening.harden()


def close_all_but(kept: "list[int]") -> None:
    first = 3
    for descriptor in sorted(kept):
        os.closerange(first, descriptor)
        first = descriptor + 1
    os.closerange(first, os.sysconf("SC_OPEN_MAX"))


def refuse(descriptor: int, message: str) -> None:
    import json
    import struct

    body = json.dumps({"is": "Unready", "message": message}).encode("ascii")
    os.write(descriptor, struct.pack("!I", len(body)) + body)


def make_importable() -> None:
    from importlib.util import module_from_spec, spec_from_file_location

    path = os.path.join(PACKAGE, "__init__.py")  # noqa: PTH118 - as above
    spec = spec_from_file_location("windlass_child", path, submodule_search_locations=[PACKAGE])
    assert spec is not None
    assert spec.loader is not None
    package = module_from_spec(spec)
    sys.modules["windlass_child"] = package
    spec.loader.exec_module(package)


if __name__ == "__main__":  # a process that crew code spawns imports this file too, under another name
    sys.exit(main())
