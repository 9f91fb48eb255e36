from __future__ import annotations

import pytest

from windlass.kickoffs.declared_settings import BadSetting
from windlass.kickoffs.opened_files import FILES, opened

pytestmark = pytest.mark.unit


def test_a_path_is_opened_to_read_or_to_write_too() -> None:
    listed = FILES.value(["/data/models:ro", "/data/out:rw", "/a:b:ro"])
    assert opened(listed) == (("/data/models", "read"), ("/data/out", "write"), ("/a:b", "read"))


@pytest.mark.parametrize(
    "given",
    ["/:ro", "//:rw", "/data", "/data:rx", "data:ro", "/data/../root:ro", "~/data:ro", "", ":ro", "/da\nta:ro"],
)
def test_other_texts_are_refused(given: str) -> None:
    with pytest.raises(BadSetting):
        FILES.value([given])


@pytest.mark.parametrize("given", ["/data:ro", [1], ["/data:ro"] * 101, None])
def test_other_values_are_refused(given: object) -> None:
    with pytest.raises(BadSetting, match="must be a list of paths"):
        FILES.value(given)
