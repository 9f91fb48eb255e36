"""Which parts of the boundary of runs hold on which machine, and what is said of those that do not."""

from __future__ import annotations

import pytest

from windlass.accounts import Account
from windlass.kickoffs.boundary_parts import BoundaryPart, boundary_parts, of_crew
from windlass.kickoffs.egress import UNRESTRICTED, Egress
from windlass_child.process.hardening import CONFINES, SCOPES_SIGNALS
from windlass_child.process.sockets import CLOSED, FILTERED, TO_A_PORT

pytestmark = pytest.mark.unit
CREWS = Account(59_999, 59_999, "windlass-crew", is_ours=False)
NUMBERS = "60000-64999"


def parts(
    crews: Account | None = CREWS,
    numbers: str = NUMBERS,
    server: int = 0,
    landlock: int = SCOPES_SIGNALS,
    why: str = "",
    sockets: str = CLOSED,
) -> dict[str, BoundaryPart]:
    found = boundary_parts(crews, numbers, server=server, landlock=landlock, refused=why, sockets=sockets)
    return {one.part: one for one in found}


def test_on_a_server_of_root_with_all_of_it_every_part_holds() -> None:
    found = parts()
    assert [(name, one.holds) for name, one in found.items()] == [
        ("users", "yes"),
        ("files", "yes"),
        ("network", "yes"),
    ]
    assert NUMBERS in found["users"].text


@pytest.mark.parametrize(
    ("crews", "numbers", "server", "landlock", "users", "files"),
    [
        (CREWS, NUMBERS, 0, CONFINES, "yes", "yes"),
        (CREWS, NUMBERS, 0, 0, "yes", "partly"),
        (CREWS, "none", 0, SCOPES_SIGNALS, "partly", "yes"),
        (CREWS, "none", 0, CONFINES, "partly", "partly"),
        (CREWS, "none", 0, 0, "no", "no"),
        (None, NUMBERS, 1000, SCOPES_SIGNALS, "partly", "yes"),
        (None, NUMBERS, 1000, CONFINES, "partly", "partly"),
        (None, NUMBERS, 1000, CONFINES - 1, "no", "no"),
        (None, NUMBERS, 0, SCOPES_SIGNALS, "no", "yes"),
    ],
)
def test_users_and_landlock_stand_in_for_each_other(
    crews: Account | None, numbers: str, server: int, landlock: int, users: str, files: str
) -> None:
    found = parts(crews, numbers, server, landlock)
    assert (found["users"].holds, found["files"].holds) == (users, files)


@pytest.mark.parametrize(
    ("found", "part", "bypass", "remedy"),
    [
        (parts(None, server=1000), "users", "sockets of the machine", "Start the server as root"),
        (parts(None, server=1000, landlock=0), "users", "the key that encrypts", "Start the server as root"),
        (parts(None, server=1000, landlock=CONFINES), "files", "can send them signals", "Linux 6.12"),
        (parts(None, server=1000, landlock=0), "files", "read each other's files", "Linux 5.19"),
        (parts(landlock=0), "files", "other runs of its deployment", "Linux 5.19"),
        (parts(numbers="none"), "users", "sockets of each other, and files in /dev/shm", "Unset WINDLASS_CREW_USERS"),
        (parts(None), "users", "as root", "Unset it"),
        (parts(why="Operation not permitted"), "network", "Operation not permitted", "egress.md"),
        (parts(why="not permitted"), "network", "a stricter egress fail", "Permit namespaces"),
        (parts(why="not permitted", sockets=FILTERED), "network", "everything by TCP", "Linux 6.7"),
        (parts(why="not permitted", sockets=TO_A_PORT), "network", "number of the proxy's port", "Permit namespaces"),
    ],
)
def test_a_part_that_does_not_hold_says_what_can_be_bypassed_and_what_to_do(
    found: dict[str, BoundaryPart], part: str, bypass: str, remedy: str
) -> None:
    assert found[part].holds != "yes"
    assert bypass in found[part].text
    assert remedy in found[part].text


@pytest.mark.parametrize(("sockets", "holds"), [(CLOSED, "no"), (FILTERED, "partly"), (TO_A_PORT, "partly")])
def test_without_namespaces_the_network_holds_as_far_as_sockets_are_filtered(sockets: str, holds: str) -> None:
    assert parts(why="not permitted", sockets=sockets)["network"].holds == holds
    assert parts(sockets=sockets)["network"].holds == "yes"


def test_a_crew_without_an_egress_has_no_network_of_its_own() -> None:
    whole = tuple(parts().values())
    assert of_crew(whole, Egress.parse(["open"])) == list(whole)
    *others, network = of_crew(whole, UNRESTRICTED)
    assert others == list(whole[:2])
    assert (network.part, network.holds) == ("network", "no")
    assert "unrestricted" in network.text


def test_a_part_is_the_same_after_its_way_through_json() -> None:
    for one in parts(None, server=1000, landlock=0, why="none").values():
        assert BoundaryPart.from_json({**one.to_json(), "of a later release": 1}) == one
