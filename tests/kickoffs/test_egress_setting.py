"""What the setting `egress` permits, and which values it refuses."""

from __future__ import annotations

import pytest

from windlass.kickoffs.declared_settings import BadSetting
from windlass.kickoffs.egress import EGRESS, UNRESTRICTED, Egress

pytestmark = pytest.mark.unit
METADATA = ["169.254.169.254", "fe80::1", "fd00:ec2::254", "100.100.100.200", "168.63.129.16", "::ffff:169.254.169.254"]
OF_THE_MACHINE = ["127.0.0.1", "127.8.9.1", "::1", "0.0.0.0", "::", "::ffff:127.0.0.1", "64:ff9b::7f00:1"]
PRIVATE = ["10.1.2.3", "172.20.0.2", "192.168.1.1", "fd12::1", "::ffff:10.1.2.3", "64:ff9b::a01:203", "100.64.0.1"]
PUBLIC = ["93.184.216.34", "2606:2800:220:1:248:1893:25c8:1946", "::ffff:93.184.216.34"]


@pytest.mark.parametrize(
    ("given", "permits_private", "permits_public"),
    [
        (["open"], True, True),
        (["public"], False, True),
        (["none"], False, False),
        (["api.openai.com"], False, False),
        (["10.1.2.0/24"], None, False),
        (["0.0.0.0/0", "::/0"], True, True),
    ],
)
def test_each_word_and_network(given: list[str], permits_private: bool | None, permits_public: bool) -> None:
    egress = Egress.parse(given)
    for address in METADATA + OF_THE_MACHINE:
        assert not egress.permits(address, 80), address
    for address in PRIVATE:
        assert permits_private is None or egress.permits(address, 80) is permits_private, address
    for address in PUBLIC:
        assert egress.permits(address, 443) is permits_public, address
    assert not egress.permits("93.184.216.34", 443, own=True)


def test_unrestricted_permits_everything() -> None:
    assert all(UNRESTRICTED.permits(address, 80, own=True) for address in METADATA + OF_THE_MACHINE + PRIVATE + PUBLIC)
    assert not UNRESTRICTED.is_enforced


def test_only_an_entry_that_is_the_address_itself_opens_a_closed_one() -> None:
    egress = Egress.parse(["open", "127.0.0.1:11434", "169.254.0.0/16", "db.example.com", "10.0.0.5"])
    assert egress.permits("127.0.0.1", 11434)
    assert egress.permits("::ffff:127.0.0.1", 11434)
    assert not egress.permits("127.0.0.1", 5432)
    assert not egress.permits("127.0.0.2", 11434)
    assert not egress.permits("169.254.169.254", 80)
    assert egress.permits("10.0.0.5", 5432, own=True)
    assert not egress.permits("10.0.0.6", 5432, own=True)
    assert not egress.permits("127.0.0.1", 5432, ["db.example.com"])


def test_localhost_is_both_loopback_addresses() -> None:
    egress = Egress.parse(["localhost:8123"])
    assert [egress.permits(one, 8123) for one in ("127.0.0.1", "::1", "127.0.0.2")] == [True, True, False]


@pytest.mark.parametrize(
    ("entry", "name", "permitted"),
    [
        ("api.openai.com", "api.openai.com", True),
        ("API.OpenAI.com.", "api.openai.com", True),
        ("api.openai.com", "eu.api.openai.com", False),
        ("*.serper.dev", "google.serper.dev", True),
        ("*.serper.dev", "a.b.serper.dev", True),
        ("*.serper.dev", "serper.dev", False),
        ("*.serper.dev", "evilserper.dev", False),
        ("redis", "redis", True),
    ],
)
def test_names_count_for_the_addresses_that_a_look_up_gave(entry: str, name: str, permitted: bool) -> None:
    egress = Egress.parse([entry])
    assert egress.resolves(name) is permitted
    assert egress.permits("93.184.216.34", 443, [name]) is permitted
    assert egress.permits("10.1.2.3", 443, [name]) is permitted, "a service in a private network"
    assert not egress.permits("93.184.216.34", 443)


def test_ports() -> None:
    egress = Egress.parse(["api.openai.com:443", "10.1.2.0/24:5432", "[fd12::5]:6379", "fd13::/16"])
    assert egress.ports == {443, 5432, 6379}
    assert egress.permits("93.184.216.34", 443, ["api.openai.com"])
    assert not egress.permits("93.184.216.34", 80, ["api.openai.com"])
    assert egress.permits("10.1.2.9", 5432)
    assert not egress.permits("10.1.2.9", 5433)
    assert egress.permits("fd12::5", 6379)
    assert egress.permits("fd13::1", 9999)


def test_a_list_with_open_or_public_permits_more() -> None:
    assert Egress.parse(["public", "10.1.2.3:5432"]).permits("10.1.2.3", 5432)
    assert Egress.parse(["public", "10.1.2.3:5432"]).permits("93.184.216.34", 1234)
    assert Egress.parse(["none"]).also(["127.0.0.1:4000"]).permits("127.0.0.1", 4000)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ([], "must be a list"),
        ("nothing", None),
        ([1], "must be a list"),
        (["none", "api.openai.com"], "'none' must stand alone"),
        (["unrestricted", "open"], "'unrestricted' must stand alone"),
        (["open", "public"], "can't stand together"),
        (["https://api.openai.com"], "is a URL"),
        (["pubilc"], "did you mean 'public'"),
        (["api.openai.com/v1"], "is none of"),
        (["api..openai.com"], "is none of"),
        (["*"], "is none of"),
        (["a.*.com"], "is none of"),
        (["10.1.2.300"], "is none of"),
        (["10.1.2.0/33"], "is none of"),
        (["api.openai.com:0"], "ends with a port"),
        (["api.openai.com:70000"], "ends with a port"),
        (["api.openai.com:https"], "ends with a port"),
        (["[fd00::1"], "brackets"),
        (["[api]:1:2"], "ends with a port"),
        ([""], "is none of"),
        (["a" * 300], "is none of"),
        (["a.example"] * 300, "more than 200"),
    ],
)
def test_what_is_refused(given: object, why: str | None) -> None:
    if why is None:
        assert EGRESS.value(given) == ["nothing"], "a name of one label"
        return
    with pytest.raises(BadSetting, match=why.replace("(", r"\(")):
        EGRESS.value(given)
