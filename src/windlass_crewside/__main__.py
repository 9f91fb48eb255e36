"""The first lines of a process for crews, in an interpreter that may know nothing of Windlass. As a zygote it is called

    PYTHON -X utf8 __main__.py SOCKET PRELOAD [project]

with the number of the descriptor of its socket, the framework to import ("" for none) and, where it is to import a
project's own modules too, the word `project`: then a `Preload` is the first message. As a child that shares nothing
with its zygote it is called by that zygote, with its three descriptors (messages.Fork) and the zygote's process id:

    PYTHON -X utf8 __main__.py child SOCKET OUTPUT ERRORS ZYGOTE

Of the folder that this file was installed to, only the package itself becomes importable: the server's libraries beside
it must not shadow the crew's. The syntax is that of older Pythons, so that one of them can say that it is too old.
"""

import os
import sys

OLDEST = (3, 11)
PACKAGE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - before pathlib, which costs 10 ms


def main() -> int:
    sys.path[:] = [entry for entry in sys.path if os.path.realpath(entry or ".") != os.path.realpath(PACKAGE)]
    if sys.argv[1] == "child":
        be_child([int(number) for number in sys.argv[2:6]])
        return 0
    descriptor, preload = int(sys.argv[1]), sys.argv[2]
    close_all_but([descriptor])  # uvloop starts processes with copies of whatever of its own can be inherited
    if sys.version_info < OLDEST:
        refuse(descriptor)
        return 1
    begin()
    from windlass_crewside import hardening

    hardening.die_with_parent(descriptor)  # while it imports, it can't hear of that end from its socket
    from windlass_crewside import zygote

    zygote.live(descriptor, preload or None, with_project="project" in sys.argv[3:])
    return 0


def be_child(numbers: "list[int]") -> None:
    close_all_but(numbers[:3])
    begin()
    from windlass_crewside import child
    from windlass_crewside.surroundings import prepare_output

    prepare_output()
    child.live(*numbers)


def begin() -> None:
    make_importable()
    from windlass_crewside import hardening

    hardening.harden()


def close_all_but(kept: "list[int]") -> None:
    first = 3
    for descriptor in sorted(kept):
        os.closerange(first, descriptor)
        first = descriptor + 1
    os.closerange(first, os.sysconf("SC_OPEN_MAX"))


def refuse(descriptor: int) -> None:
    import json
    import struct

    message = "{} is Python {}.{}; crews run on Python {}.{} or newer.".format(  # noqa: UP032 - older syntax
        sys.executable, sys.version_info[0], sys.version_info[1], OLDEST[0], OLDEST[1]
    )
    body = json.dumps({"is": "Unready", "message": message}).encode("ascii")
    os.write(descriptor, struct.pack("!I", len(body)) + body)


def make_importable() -> None:
    from importlib.util import module_from_spec, spec_from_file_location

    path = os.path.join(PACKAGE, "__init__.py")  # noqa: PTH118 - as above
    spec = spec_from_file_location("windlass_crewside", path, submodule_search_locations=[PACKAGE])
    assert spec is not None
    assert spec.loader is not None
    package = module_from_spec(spec)
    sys.modules["windlass_crewside"] = package
    spec.loader.exec_module(package)


if __name__ == "__main__":  # a process that crew code spawns imports this file too, under another name
    sys.exit(main())
