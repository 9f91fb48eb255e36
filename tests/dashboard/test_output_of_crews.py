"""What crews return is hostile: what pages make of it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from dashboard.made_runs import started
from windlass.dashboard.output import (
    DEEPEST,
    MOST_NODES,
    MOST_SHOWN,
    TextDecoder,
    first_input,
    indented,
    markdown,
    parsed_or_none,
    table_of,
    tree,
    value_of,
)
from windlass.store.executions import Beginning

if TYPE_CHECKING:
    from api.serving import Crew
    from dashboard.people import Visitor

HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg onload=alert(1)><style>*{display:none}</style>",
    "[a](javascript:alert(1))",
    "[a](JaVaScRiPt:alert(1))",
    "[a](data:text/html;base64,PHNjcmlwdD4=)",
    "[a](vbscript:x)",
    "![a](https://elsewhere.test/pixel.png)",
    '<https://a.test/" onmouseover="x>',
    '<a href="https://a.test" onclick="x" style="position:fixed">a</a>',
    "```html\n</code></pre><script>x</script>\n```",
    "[a]: javascript:x\n\n[a]",
    '[a](https://a.test "\\" onclick=\\"x")',
]


@pytest.mark.parametrize("text", HOSTILE)
def test_markdown_has_no_script_handler_style_image_or_other_scheme(text: str) -> None:
    html = str(markdown(text)).lower()
    for tag in re.findall(r"<[^>]*>", html):
        assert re.match(r"</?(p|a|pre|code)\b", tag), tag
        assert not re.search(r"\s(on\w+|style|src)=", re.sub(r'"[^"]*"', '""', tag)), tag
    assert all(re.match("https?:|mailto:", one) for one in re.findall(r'href="([^"]*)"', html))


def test_markdown_keeps_text_tables_and_links_that_tell_no_other_site_where_they_stood() -> None:
    html = str(markdown("# Tides\n\n| a |\n|---|\n| 1 |\n\n[x](https://a.test)"))
    assert "<h3>Tides</h3>" in html
    assert "<td>1</td>" in html
    assert '<a href="https://a.test" rel="noopener noreferrer nofollow">x</a>' in html


def test_deep_and_wide_values_have_bounds() -> None:
    deep = json.loads("[" * 500 + "]" * 500)
    assert str(tree(deep)).count("<details") == DEEPEST + 1
    wide = {str(number): ["x"] * 150 for number in range(150)}
    assert str(tree(wide)).count("<div") <= MOST_NODES
    assert "more are in the raw text" in str(tree(wide))
    assert parsed_or_none("[" * 200_000 + "]" * 200_000) is None
    assert parsed_or_none("1" * 5000) is None
    assert "<b>" not in str(tree({"<b>": "<b>"}))
    nested = "> " * 2000 + "a"
    assert str(markdown(nested)).count("<blockquote") <= 20


def test_the_indents_of_a_value_of_many_levels_are_left_out() -> None:
    assert indented({"a": [1]}) == '{\n  "a": [\n    1\n  ]\n}'
    flat = json.loads("[" * 400 + "0," * 100_000 + "0" + "]" * 400)
    assert len(indented(flat)) < 2 * MOST_SHOWN, "with indents, it would have 80 million characters"
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    assert "levels" in indented(deep)


def test_a_value_that_is_cut_is_shown_as_far_as_it_goes() -> None:
    literal = '"a \\u00fc \\ud83d\\ude00 b"'
    whole = value_of(Beginning(literal, len(literal)))
    assert whole is not None
    assert (whole.text, whole.is_whole) == ("a ü 😀 b", True)
    for length in range(3, len(literal)):
        cut = value_of(Beginning(literal[:length], len(literal)))
        assert cut is not None
        assert cut.text.startswith("a")
        assert not cut.is_whole
    broken = value_of(Beginning('{"a": [1, 2', 5000))
    assert broken is not None
    assert (broken.text, broken.tree) == ('{"a": [1, 2', None)


@pytest.mark.parametrize(
    "text", ["plain", 'q"u\\o\nte', "ü" * 30 + "😀" * 9, "\ud800 half", "\ud83d", '""', "\\", "", "\0"]
)
def test_a_text_that_comes_in_pieces_is_decoded_as_a_whole(text: str) -> None:
    for as_ascii in (True, False):
        literal = json.dumps(text, ensure_ascii=as_ascii).encode("utf-8", "replace" if not as_ascii else "strict")
        if not as_ascii and not text.isprintable():
            continue
        for size in (1, 2, 3, 5, 7, 100):
            decoder = TextDecoder()
            pieces = [decoder.decode(literal[at : at + size]) for at in range(0, len(literal), size)]
            assert b"".join(pieces) + decoder.decode(b"", is_last=True) == text.encode("utf-8", "replace")


def test_a_list_of_flat_objects_is_a_table_and_others_are_not() -> None:
    assert table_of([{"a": 1, "b": "x"}, {"a": 2, "c": None}]) == (
        ["a", "b", "c"],
        [{"a": 1, "b": "x"}, {"a": 2, "c": None}],
    )
    assert table_of([{"a": [1]}]) is None
    assert table_of([1]) is None
    assert table_of([{str(number): 1 for number in range(30)}]) is None


def test_the_first_input_is_one_short_line() -> None:
    assert first_input('{"topic": "tides\\n  and more", "x": 1}') == "tides and more"
    assert first_input('{"rows": [1, 2]}') == "[1, 2]"
    assert first_input(json.dumps({"a": "x" * 200})) == "x" * 79 + "…"
    assert first_input("{}") is None
    assert first_input(None) == "large inputs"
    assert first_input('{"text": "' + "x" * 200) == "x" * 79 + "…"
    assert first_input('{"rows": [1, 2') == "[1, 2"
    assert first_input('{"n": 1, "text": "xx') == "1"
    assert first_input("{}") is None


def test_lines_stay_lines_and_images_become_links() -> None:
    assert "one<br>" in markdown("one\ntwo")
    html = markdown('![a "chart"](https://elsewhere.test/x.png) ![](javascript:alert(1))')
    assert "<img" not in html
    assert 'href="https://elsewhere.test/x.png"' in html
    assert ">Image: a " in html
    assert "!" not in html.replace("![](javascript", "")


@pytest.mark.asyncio(loop_scope="session")
async def test_the_page_of_a_large_value_begins_with_its_size_and_the_whole_to_download(
    crew: Crew, viewer: Visitor
) -> None:
    run = (await started(crew)).run
    await run.succeed(structured={"rows": ["y" * 50] * 8000})
    url = f"/ui/crews/{crew.deployment.slug}/executions/{run.claimed.id}"
    page = (await viewer.get(f"{url}?view=json")).text
    assert page.index("This is the beginning of") < page.index("yyyy")
    assert "Download the whole output" in page
