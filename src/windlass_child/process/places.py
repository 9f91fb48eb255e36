"""The places of the machine that every run may use. The server adds those of the run (messages.Fork)."""

# See docs/decisions/security.md#a-run-may-use-a-list-of-files

from __future__ import annotations

import os
import sys
from glob import glob
from itertools import chain

LIST, READ, WRITE, SHARE = "list", "read", "write", "share"
"""What is permitted in a place: to list folders; to read and execute too; to write and remove too. SHARE is WRITE
without LIST: who uses a file must know its name.
"""

MACHINE = {
    "programs, libraries, the certificates and time zones of most systems": (
        "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/snap",
    ),
    "how libraries are found": (
        "/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/ld.so.preload",
    ),
    "certificates": (
        "/etc/ssl", "/etc/pki", "/etc/ca-certificates", "/etc/ca-certificates.conf", "/etc/crypto-policies",
        "/var/lib/ca-certificates",
    ),
    "names of hosts and services": (
        "/etc/resolv.conf", "/run/systemd/resolve", "/run/resolvconf", "/etc/hosts", "/etc/host.conf", "/etc/hostname",
        "/etc/nsswitch.conf", "/etc/gai.conf", "/etc/services", "/etc/protocols", "/etc/networks", "/etc/krb5.conf",
    ),
    "names of users, which programs look up": ("/etc/passwd", "/etc/group"),
    "time and language": (
        "/etc/localtime", "/etc/timezone", "/etc/locale.alias", "/etc/locale.conf", "/etc/default/locale",
    ),
    "types and names of systems, read by platform and mimetypes": (
        "/etc/mime.types", "/etc/magic", "/etc/os-release", "/etc/debian_version", "/etc/lsb-release",
        "/etc/redhat-release", "/etc/machine-id",
    ),
    "fonts and drawing, for reports and browsers": (
        "/etc/fonts", "/var/cache/fontconfig", "/etc/matplotlibrc", "/etc/papersize", "/etc/ImageMagick-*",
        "/etc/libreoffice", "/etc/chromium", "/etc/opt/chrome", "/etc/gtk-3.0", "/etc/glvnd", "/etc/vulkan",
        "/etc/OpenCL",
    ),
    "programs that crews start: shells, git, ssh, curl, node, Java, Python": (
        "/etc/bash.bashrc", "/etc/profile", "/etc/profile.d", "/etc/shells", "/etc/inputrc", "/etc/terminfo",
        "/etc/gitconfig", "/etc/ssh/ssh_config", "/etc/ssh/ssh_config.d", "/etc/ssh/ssh_known_hosts", "/etc/curlrc",
        "/etc/wgetrc", "/etc/npmrc", "/etc/java*", "/etc/python3*", "/etc/odbcinst.ini",
    ),
    "what numpy, torch, multiprocessing and runtimes ask about processors, memory and devices": (
        "/sys/devices", "/sys/class", "/sys/bus", "/sys/module", "/sys/fs/cgroup", "/sys/kernel/mm", "/proc",
    ),
}  # fmt: skip
"""The places that can be read, by the reason."""

WRITABLE = {
    "names of threads and the score for the memory of the machine": ("/proc/self",),
    "devices that keep nothing": (
        "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty",
    ),
    "graphics cards": ("/dev/dri", "/dev/kfd", "/dev/nvidia*"),
}  # fmt: skip
"""The places that can be written, by the reason."""

SHARED_MEMORY = "/dev/shm"  # noqa: S108 - where POSIX shared memory is
"""All programs of the machine share it. Libraries make files in it with random names, and list it never."""

OF_A_ZYGOTE = {"/etc": READ, "/proc": WRITE}
"""What a zygote may use too. Files of /etc are replaced while it lives, and its rule for a file would stay with the old
one. Its children write the maps of their namespaces in /proc.
"""


OF_A_PYTHON = ("bin", "etc", "include", "lib", "lib64", "libexec", "ssl")
"""The folders of a Python's prefix, which may be a folder with other things, such as ~/.local."""


def of_a_python(environment: str, base: str) -> list[str]:
    """Returns the places of an interpreter with these prefixes: of the environment all, of the base Python its own."""
    own = [f"{base}/{name}" for name in OF_A_PYTHON]
    if environment == base:
        return own
    return [environment, f"{environment}/lib", f"{environment}/lib64", *own]  # which may be links


def of_this_python() -> dict[str, str]:
    """Returns the places of this interpreter. The server knows the program that starts it, which may be a script."""
    places = of_a_python(sys.prefix, sys.base_prefix)
    return dict.fromkeys([*places, os.path.realpath(sys.executable)], READ)


def of_the_machine() -> dict[str, str]:
    """Returns the places that exist. A folder or file that comes later is not among them."""
    found = dict.fromkeys(chain.from_iterable(map(glob, chain.from_iterable(MACHINE.values()))), READ)
    found |= dict.fromkeys(chain.from_iterable(map(glob, chain.from_iterable(WRITABLE.values()))), WRITE)
    return found | {SHARED_MEMORY: SHARE}
