"""PYTHON __main__.py SOCKET PRELOAD: the first lines of a zygote, in an interpreter that may know nothing of Windlass.

Of the folder that this file was installed to, only the package itself becomes importable: the server's libraries beside
it must not shadow the crew's. The syntax is that of older Pythons, so that one of them can say that it is too old.
"""

import os
import sys

OLDEST = (3, 11)
PACKAGE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - before pathlib, which costs 10 ms


def main() -> int:
    sys.path[:] = [entry for entry in sys.path if os.path.realpath(entry or ".") != os.path.realpath(PACKAGE)]
    descriptor, preload = int(sys.argv[1]), sys.argv[2]
    os.closerange(3, descriptor)  # uvloop starts processes with copies of whatever of its own can be inherited
    os.closerange(descriptor + 1, os.sysconf("SC_OPEN_MAX"))
    if sys.version_info < OLDEST:
        refuse(descriptor)
        return 1
    make_importable()
    from windlass_crewside import zygote

    zygote.live(descriptor, preload or None)
    return 0


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
