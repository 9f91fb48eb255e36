from __future__ import annotations

import pytest

from windlass.kickoffs.declared_settings import BadSetting
from windlass.kickoffs.limits import Limits
from windlass_child.protocol.sizes import size_in_words

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("given", "size"),
    [(1000, 1000), ("512 MB", 512 << 20), ("1.5gb", 3 << 29), ("64KB", 64 << 10), ("100", 100), (2.0, 2)],
)
def test_sizes_are_read_as_people_write_them(given: object, size: int) -> None:
    assert Limits.parse({"memory_limit": given}).memory_limit == size


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("memory_limit", "much", "memory_limit must be a number of bytes, or text such as \"512 MB\", not 'much'"),
        ("memory_limit", 0, "memory_limit must be"),
        ("memory_limit", "0.1", "memory_limit must be"),
        ("timeout", "60", "timeout must be a number of seconds above 0, not '60'"),
        ("timeout", -1, "timeout must be"),
        ("timeout", True, "timeout must be"),
        ("timeout", float("nan"), "timeout must be"),
        ("timeout", float("inf"), "timeout must be"),
        ("token_limit", 1.5, "token_limit must be a whole number above 0, not 1.5"),
        ("process_limit", [], "process_limit must be"),
        ("process_limit", 10**400, "process_limit must be a whole number above 0, not a number above 10000000000000"),
        ("memory_limit", "9" * 400 + " GB", "memory_limit must be"),
        ("timeout", 1e300, "timeout must be"),
        ("memory", 5, "there is no limit 'memory'; there are: disk_limit, event_limit"),
    ],
)
def test_what_can_not_be_a_limit_is_refused_in_words(name: str, value: object, words: str) -> None:
    with pytest.raises(BadSetting) as caught:
        Limits.parse({name: value})
    assert str(caught.value).startswith(words)


def test_a_limit_that_is_none_is_not_given() -> None:
    assert Limits.parse({"timeout": None}) == Limits()


def test_limits_survive_being_stored() -> None:
    limits = Limits(timeout=2.5, memory_limit=1 << 30, token_limit=7)
    assert Limits.parse(limits.to_json()) == limits


def test_a_deployment_replaces_what_the_server_has_and_a_kickoff_lowers_it() -> None:
    server = Limits(timeout=3600, memory_limit=2 << 30)
    deployment = Limits(timeout=7200)
    kickoff = Limits(timeout=9000, memory_limit=1 << 20, token_limit=5)
    assert server.replaced_by(deployment).lowered_by(kickoff) == Limits(
        timeout=7200, memory_limit=1 << 20, token_limit=5
    )


@pytest.mark.parametrize(
    ("size", "words"), [(512 << 20, "512 MB"), (3 << 29, "1.5 GB"), (2048, "2 KB"), (10, "10 bytes")]
)
def test_sizes_are_told_as_they_are_written(size: int, words: str) -> None:
    assert size_in_words(size) == words
