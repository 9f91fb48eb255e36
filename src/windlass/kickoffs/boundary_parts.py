"""Describes in words what separates the runs of a worker from the machine and from each other, and what does not.

`windlass doctor`, `windlass check`, the log and the dashboard show these words. A worker reports them while it lives:
its machine may permit less than that of the dashboard.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

from windlass.accounts import ROOT
from windlass_child.process.hardening import CONFINES, SCOPES_SIGNALS
from windlass_child.process.sockets import CLOSED, TO_A_PORT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from windlass.accounts import Account
    from windlass.kickoffs.egress import Egress

Part = Literal["users", "files", "network"]
Holds = Literal["yes", "partly", "no"]


@dataclass(frozen=True, slots=True)
class BoundaryPart:
    """A part of the boundary of runs. `text` has what it does, what can be bypassed, and what to do then."""

    part: Part
    holds: Holds
    text: str

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Self:
        return cls(given["part"], given["holds"], given["text"])

    def to_json(self) -> dict[str, str]:
        return asdict(self)


def users(crews: Account | None, numbers: str, *, server: int, landlock: int) -> BoundaryPart:
    """Returns the part of the system users.

    `crews` is the user of crews, None for that of the server, whose number is `server`. `numbers` are those of the
    users of deployments, or "none". `landlock` is the version of the kernel's.
    """
    confines = landlock >= CONFINES
    if crews is not None:
        name = f"{crews.name} ({crews.uid})"
        if numbers != "none":
            return BoundaryPart(
                "users",
                "yes",
                f"The crew of each deployment runs as a system user of its own, one of {numbers}. Other crews run as "
                f"{name}. They can't read the server's files.",
            )
        if confines:
            left = "They can reach sockets of each other, and files in /dev/shm, whose paths they know."
        else:
            left = "They can read and change the files of each other."
        return BoundaryPart(
            "users",
            "partly" if confines else "no",
            f"All crews run as the system user {name}, which can't read the server's files. {left} Unset "
            "WINDLASS_CREW_USERS to give each deployment a user of its own.",
        )
    if server == ROOT:
        return BoundaryPart(
            "users",
            "no",
            "Crews run as root, like the server, because WINDLASS_CREW_USER is root. Unset it to run them as another "
            "user.",
        )
    if confines:
        left = "They can reach sockets of the machine and of other crews, and files in /dev/shm, whose paths they know."
    else:
        left = "They can read the server's files, also the key that encrypts its secrets, and the files of other crews."
    return BoundaryPart(
        "users",
        "partly" if confines else "no",
        f"Crews run as the server's own user ({server}). {left} Start the server as root to give each deployment a "
        "user of its own.",
    )


def files(landlock: int, *, has_users: bool) -> BoundaryPart:
    """Returns the part of the files, memory and signals. `has_users` is whether each deployment has a user."""
    text = (
        "A run reads its project, its packages and the libraries of the machine, and writes its own folder. It reaches "
        "no memory of other processes"
    )
    if landlock >= SCOPES_SIGNALS:
        return BoundaryPart("files", "yes", f"{text} and sends them no signals (Landlock {landlock}).")
    if landlock >= CONFINES and has_users:
        return BoundaryPart(
            "files", "yes", f"{text} (Landlock {landlock}), and sends no signals to other crews (users)."
        )
    if landlock >= CONFINES:
        return BoundaryPart(
            "files",
            "partly",
            f"{text}, but it can send them signals: Landlock {landlock} can't prevent that. Linux 6.12 and newer can.",
        )
    remedy = (
        "Use Linux 5.19 or newer with Landlock switched on, and in a container a seccomp profile that permits its "
        "calls (landlock_*)."
    )
    if has_users:
        return BoundaryPart(
            "files",
            "partly",
            "The kernel has no usable Landlock. Users separate deployments from each other and from the server. A run "
            "can still read what every user of the machine can read, and reach other runs of its deployment. "
            f"{remedy}",
        )
    return BoundaryPart(
        "files",
        "no",
        "The kernel has no usable Landlock: crews of one user can read each other's files, signal each other, and read "
        f"the memory of a process that another crew has just started. {remedy}",
    )


def network(refused: str, sockets: str = CLOSED) -> BoundaryPart:
    """Returns the part of the network. `refused` is why the machine permits no namespaces to crews, "" if it does.
    `sockets` is what it permits then (windlass_child.process.sockets).
    """
    if not refused:
        return BoundaryPart(
            "network",
            "yes",
            "Each run has a network of its own. Only connections that the egress of its crew permits leave it.",
        )
    text = (
        f"The machine permits no namespaces to crews: {refused}. The egress open is not enforced: runs reach the "
        "services of the machine, the database and metadata services."
    )
    remedy = "Permit namespaces (docs/how-to/egress.md)."
    if sockets == CLOSED:
        return BoundaryPart("network", "no", f"{text} Runs with a stricter egress fail. {remedy}")
    text = f"{text} Runs with none have no network sockets. Runs with public or a list have a proxy"
    if sockets == TO_A_PORT:
        left = (
            ", and connect to nothing else. Clients that know no proxy (psycopg, redis) can't connect, nor can a crew "
            "to servers of its own. Other hosts can be reached at the number of the proxy's port."
        )
    else:
        left = (
            " in their environment, and no UDP. Code that ignores the proxy reaches everything by TCP: Landlock of "
            "Linux 6.7 and newer can prevent that."
        )
    return BoundaryPart("network", "partly", f"{text}{left} {remedy}")


def of_crew(parts: Sequence[BoundaryPart], egress: Egress) -> list[BoundaryPart]:
    """Returns the parts as they hold for a crew with this egress."""
    if egress.is_enforced:
        return [*parts]
    text = "The egress of this crew is unrestricted: its runs have the network of the machine, and all that it reaches."
    return [BoundaryPart(one.part, "no", text) if one.part == "network" else one for one in parts]


def boundary_parts(
    crews: Account | None, numbers: str, *, server: int, landlock: int, refused: str, sockets: str = CLOSED
) -> tuple[BoundaryPart, ...]:
    has_users = crews is not None and numbers != "none"
    return (
        users(crews, numbers, server=server, landlock=landlock),
        files(landlock, has_users=has_users),
        network(refused, sockets),
    )
