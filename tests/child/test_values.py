"""Values of a project's own types are kept as JSON and come back as what they were."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import ipaddress
import json
import os
import pathlib
import subprocess
import sys
import uuid
from collections import Counter, OrderedDict, defaultdict, deque
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import pytest
from pydantic import BaseModel, HttpUrl, PrivateAttr, RootModel, SecretStr

from windlass_child.journal.value_codec import decoded, encoded

BERLIN = ZoneInfo("Europe/Berlin")


class Kind(enum.Enum):
    LEFT = "left"


class Pair(NamedTuple):
    a: int
    b: list[str]


@dataclasses.dataclass(frozen=True)
class Point:
    x: int


@dataclasses.dataclass
class Unset:
    x: int = 1
    y: int = dataclasses.field(init=False)


@dataclasses.dataclass(slots=True)
class Slotted:
    x: int
    y: list[int] = dataclasses.field(default_factory=list)


class Counting(BaseModel):
    """Each time that it is made it counts on."""

    model_config = {"extra": "allow"}

    a: int
    b: int = 0
    _hidden: list[str] = PrivateAttr(default_factory=list)
    _never: int = PrivateAttr()

    def model_post_init(self, _context: Any) -> None:
        self.b += self.a


class Listed(RootModel[list[int]]):
    pass


class Login(BaseModel):
    user: str
    password: SecretStr
    page: HttpUrl
    since: dt.datetime


VALUES = {
    "json": [None, True, 1, 2.5, "é\ud800\x00", {"a": [{}]}, float("inf")],
    "tag": {"$": "dict", "v": 1},
    "keys": {1: "one", "1": "text one", (2, 3): None, None: 0},
    "containers": [(1, (2,)), {1, 2}, frozenset({"a"}), deque([1, 2], 3), Pair(1, ["b"]), b"\xff"],
    "mappings": [Counter("aab"), OrderedDict([("z", 1), ("a", 2)])],
    "moments": [
        dt.datetime(2026, 3, 29, 1, tzinfo=BERLIN),
        dt.datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=BERLIN),
        dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
        dt.datetime(2026, 1, 1, 0, 0, 0, 1),  # noqa: DTZ001 - one without a zone
        dt.time(1, 2, tzinfo=dt.timezone(dt.timedelta(hours=-3))),
        dt.date(2020, 2, 29),
        dt.timedelta(days=-1, microseconds=1),
    ],
    "texts": [
        decimal.Decimal("1.10"),
        uuid.UUID(int=7),
        pathlib.Path("a/b"),
        ipaddress.ip_address("::1"),
    ],
    "objects": [Kind.LEFT, Point(1), Slotted(1, [2]), Listed([1, 2]), Point, int],
}


@pytest.mark.parametrize("name", VALUES)
def test_a_value_comes_back_as_what_it_was(name: str) -> None:
    held = json.dumps(encoded(VALUES[name]))
    again = decoded(json.loads(held))
    assert again == VALUES[name]
    assert repr(again) == repr(VALUES[name]), "with its types"
    assert json.dumps(encoded(again)) == held


def test_a_day_in_a_zone_is_as_long_as_it_is_there() -> None:
    (again,) = decoded(encoded([dt.datetime(2026, 3, 28, 12, tzinfo=BERLIN)]))
    assert (again + dt.timedelta(days=1)).utcoffset() == dt.timedelta(hours=2)


def test_a_dictionary_with_defaults_has_them_again() -> None:
    words = defaultdict(list, {"a": [1]})
    again = decoded(encoded(words))
    again["b"].append(2)
    assert again == {"a": [1], "b": [2]}
    with pytest.raises(TypeError, match="a function has no form in the journal"):
        encoded(defaultdict(lambda: 1))


def test_a_model_comes_back_without_its_code_being_run() -> None:
    model = Counting.model_validate({"a": 1, "b": 10, "more": (1, 2)})
    model._hidden.append("h")
    again = decoded(json.loads(json.dumps(encoded(model))))
    assert again == model
    assert (again.b, again._hidden, again.model_fields_set) == (11, ["h"], model.model_fields_set)
    assert again.model_extra == {"more": (1, 2)}
    again._never = 1
    again.other = 2
    assert again.model_dump()["other"] == 2
    untouched = decoded(encoded(Counting(a=0)))
    assert untouched.model_fields_set == {"a", "b"}, "its own code has set b"


def test_secrets_and_addresses_of_models_come_back() -> None:
    login = Login.model_validate(
        {"user": "u", "password": "hidden", "page": "https://a.example/b", "since": "2026-01-01T00:00:00Z"}
    )
    again = decoded(json.loads(json.dumps(encoded(login))))
    assert again == login
    assert again.password.get_secret_value() == "hidden"
    assert again.page.host == "a.example"


def test_a_field_that_was_never_set_is_not_set_again() -> None:
    again = decoded(json.loads(json.dumps(encoded(Unset(5)))))
    assert vars(again) == {"x": 5}


def test_an_object_whose_class_has_got_another_field_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    held = encoded([Point(1)]), encoded([Counting(a=1)]), encoded([Slotted(1)])

    @dataclasses.dataclass(slots=True)
    class Other:
        x: int
        z: int

    class More(BaseModel):
        a: int
        c: int = 0

    for name, kind in (("Point", Other), ("Counting", More), ("Slotted", Other)):
        monkeypatch.setitem(globals(), name, kind)
    for value in held:
        with pytest.raises(ValueError, match="is not what it was"):
            decoded(value)


def test_what_has_no_form_is_refused_with_words() -> None:
    class Local(BaseModel):
        pass

    with pytest.raises(ValueError, match=r"there is no class .*Local"):
        encoded([Local()])
    with pytest.raises(TypeError, match="a object has no form in the journal"):
        encoded({"a": object()})


def test_sets_are_the_same_text_in_every_process() -> None:
    code = "from windlass_child.journal.value_codec import encoded; print(encoded({'a', 'b', 'c', 'd', 'e'}))"
    texts = {
        subprocess.run(
            [sys.executable, "-c", code],
            env=dict(os.environ) | {"PYTHONHASHSEED": seed},  # noqa: TID251 - of this machine's tests
            capture_output=True,
            check=True,
            timeout=60,
        ).stdout
        for seed in "123"
    }
    assert len(texts) == 1
