"""Shows what crews return: Markdown through a sanitizer, JSON as a folding tree, tables. All of it is hostile."""

# See docs/decisions/dashboard.md#markdown-of-crews-is-rendered-with-bounds

from __future__ import annotations

import asyncio
import json
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import nh3
from markdown_it import MarkdownIt
from markdown_it.common.utils import escapeHtml
from markdown_it.rules_block import table as table_rule
from markupsafe import Markup

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from markdown_it.renderer import RendererHTML, RendererProtocol
    from markdown_it.rules_block import StateBlock
    from markdown_it.token import Token
    from markdown_it.utils import EnvType, OptionsDict

    from windlass.store.executions import Beginning

MOST_SHOWN = 256 * 1024
"""Characters of a value's JSON text that a page reads."""
MOST_RENDERED, MOST_LINES = 32 * 1024, 800
"""Characters and lines of Markdown that are rendered. More take longer than a page may."""
MOST_TABLE_COLUMNS = 32
"""Vertical bars in the second line of a table in Markdown."""
DEEPEST, MOST_NODES, MOST_ITEMS, LONGEST_TEXT = 12, 2000, 200, 4000
"""The bounds of a tree: levels, values, items of one list or object, characters of one text."""
OPEN_LEVELS = 2
MOST_COLUMNS, MOST_ROWS = 12, 200
LONGEST_INDENTED = 4 * MOST_SHOWN
INDENTING = json.JSONEncoder(ensure_ascii=False, indent=2)
PARTIAL_ESCAPE = 12
"""Characters that a pair of escapes has at most: a cut can go through them."""

ALLOWED_TAGS = {
    *("p", "br", "hr", "h2", "h3", "h4", "h5", "h6", "strong", "em", "s", "blockquote", "code", "pre", "a"),
    *("ul", "ol", "li", "table", "thead", "tbody", "tr", "th", "td"),
}
ALLOWED_ATTRIBUTES = {"a": {"href", "title"}, "ol": {"start"}}
SCHEMES = {"http", "https", "mailto"}
RENDERING = ThreadPoolExecutor(1, "windlass-markdown")
"""A single thread: it holds the GIL, and the event loop would wait for each of several threads."""
REL = "noopener noreferrer nofollow"


def narrow_table(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Reads a table of at most MOST_TABLE_COLUMNS. A wider one is shown as text.

    Rows that are too short get empty cells, so a few characters for each row and for each column would make more cells
    than characters.
    """
    if start + 1 < end and state.src.count("|", state.bMarks[start + 1], state.eMarks[start + 1]) > MOST_TABLE_COLUMNS:
        return False
    return table_rule(state, start, end, silent)


MARKDOWN = MarkdownIt("commonmark", {"html": False, "maxNesting": 20, "breaks": True}).enable(
    ["table", "strikethrough"]
)


def image_link(
    renderer: RendererProtocol, tokens: Sequence[Token], place: int, options: OptionsDict, env: EnvType
) -> str:
    """Returns an image as a link to it: an image of another host would report each reader to that host."""
    token = tokens[place]
    alt = cast("RendererHTML", renderer).renderInlineAsText(token.children, options, env) if token.children else ""
    return f'<a href="{escapeHtml(str(token.attrs["src"]))}">Image{": " if alt else ""}{escapeHtml(alt)}</a>'


MARKDOWN.add_render_rule("image", image_link)
MARKDOWN.block.ruler.at("table", narrow_table, {"alt": ["paragraph", "reference"]})


@lru_cache(maxsize=32)
def markdown(text: str) -> Markup:
    """Returns Markdown as HTML that has text, lists, tables, code and links only. Headings begin at level 3."""
    tokens = MARKDOWN.parse(text)
    for token in tokens:
        if token.type in {"heading_open", "heading_close"}:
            token.tag = f"h{min(int(token.tag[1]) + 2, 6)}"
    html = MARKDOWN.renderer.render(tokens, MARKDOWN.options, {})
    clean = nh3.clean(html, tags=ALLOWED_TAGS, attributes=ALLOWED_ATTRIBUTES, url_schemes=SCHEMES, link_rel=REL)
    return Markup(clean)  # noqa: S704 - it comes from the sanitizer


@dataclass(frozen=True, slots=True)
class Value:
    """A value of a kickoff, or the beginning of it. `bytes` is the size of its whole JSON text.

    `text` is a text, or the JSON text of another value. `parsed` is the value, None if it is cut or not readable.
    """

    text: str
    parsed: Any
    is_text: bool
    is_whole: bool
    bytes: int

    @property
    def rendered_part(self) -> str:
        """Returns the part of the text that is rendered as Markdown."""
        return "".join(self.text[:MOST_RENDERED].splitlines(keepends=True)[:MOST_LINES])

    @property
    def is_rendered_whole(self) -> bool:
        return self.is_whole and len(self.rendered_part) == len(self.text)

    @property
    def tree(self) -> Markup | None:
        return None if self.parsed is None else tree(self.parsed)

    @property
    def pretty(self) -> str:
        """Returns the text to copy: JSON with indents, where the whole value is known."""
        if self.is_text or self.parsed is None:
            return self.text
        return indented(self.parsed)

    @property
    def table(self) -> tuple[list[str], list[dict[str, Any]]] | None:
        return table_of(self.parsed)


async def render(text: Value) -> Markup:
    """Renders in a thread: hostile Markdown takes some 300 ms. The next view of the same text has it from a cache."""
    return await asyncio.get_running_loop().run_in_executor(RENDERING, markdown, text.rendered_part)


def value_of(found: Beginning | None) -> Value | None:
    """Returns the value whose JSON text was read. None: there is none."""
    if found is None:
        return None
    if found.beginning.startswith('"'):
        text = text_of(found.beginning)
        return Value(text, text, is_text=True, is_whole=found.is_whole, bytes=found.bytes)
    parsed = parsed_or_none(found.beginning) if found.is_whole else None
    return Value(found.beginning, parsed, is_text=False, is_whole=found.is_whole, bytes=found.bytes)


def parsed_or_none(text: str) -> Any:
    """Returns the JSON value, None for one that is too deep, has too long numbers or is cut."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def indented(value: Any) -> str:
    """Returns the JSON text of a value with indents. One of many levels has none: they would be most of the text."""
    parts, length = [], 0
    with suppress(RecursionError):
        for part in INDENTING.iterencode(value):
            parts.append(part)
            length += len(part)
            if length > LONGEST_INDENTED:
                break
        else:
            return "".join(parts)
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return "Too many levels to be shown here."


def text_of(literal: str) -> str:
    """Returns the text of a JSON string literal whose end may be cut off."""
    found = parsed_or_none(literal)
    if isinstance(found, str):
        return found
    for shorter in range(PARTIAL_ESCAPE + 1):
        found = parsed_or_none(f'{literal[: len(literal) - shorter]}"')
        if isinstance(found, str):
            return found
    return ""


def tree(value: Any) -> Markup:
    """Returns the value as nested <details>, within the bounds above."""
    return Markup().join(_node(value, "", 0, [MOST_NODES]))


def _node(value: Any, name: Any, depth: int, left: list[int]) -> Iterator[Markup]:
    left[0] -= 1
    key = Markup('<span class="json-key">{}</span>').format(str(name)[:LONGEST_TEXT]) if name != "" else Markup()
    if not isinstance(value, dict | list) or not value:
        yield Markup('<div class="json-leaf">{}{}</div>').format(key, _leaf(value))
        return
    many = len(value)
    count = f"{many:,} {'member' if isinstance(value, dict) else 'item'}{'' if many == 1 else 's'}"
    opened = Markup(" open") if depth < OPEN_LEVELS and many <= MOST_ITEMS // 4 else Markup()
    head = Markup('<details class="json-node"{}><summary>{}<span class="muted">{}</span></summary>')
    yield head.format(opened, key, count)
    if depth >= DEEPEST:
        yield Markup('<p class="muted">More levels are in the raw text.</p>')
    else:
        yield from _items(value, depth, left)
    yield Markup("</details>")


def _items(value: dict[str, Any] | list[Any], depth: int, left: list[int]) -> Iterator[Markup]:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for place, (name, one) in enumerate(items):
        if place >= MOST_ITEMS or left[0] <= 0:
            yield Markup('<p class="muted">{} more are in the raw text.</p>').format(f"{len(value) - place:,}")
            return
        yield from _node(one, name, depth + 1, left)


def _leaf(value: Any) -> Markup:
    if isinstance(value, str):
        cut = "…" if len(value) > LONGEST_TEXT else ""
        return Markup('<span class="json-text">{}{}</span>').format(value[:LONGEST_TEXT], cut)
    text = json.dumps(value)
    return Markup('<span class="json-plain">{}</span>').format(text[:LONGEST_TEXT])


def table_of(value: Any) -> tuple[list[str], list[dict[str, Any]]] | None:
    """Returns columns and rows of a list of flat objects with few members. None for other values."""
    if not isinstance(value, list) or not value or not all(isinstance(row, dict) and row for row in value):
        return None
    columns = list(dict.fromkeys(str(name) for row in value[:MOST_ROWS] for name in row))
    is_flat = all(not isinstance(cell, dict | list) for row in value[:MOST_ROWS] for cell in row.values())
    return (columns, value[:MOST_ROWS]) if is_flat and len(columns) <= MOST_COLUMNS else None


def first_input(inputs: str | None, most: int = 80) -> str | None:
    """Returns the first input as one short line. None: there are no inputs. `inputs` is JSON text, which may be cut."""
    if inputs is None:
        return "large inputs"
    found = parsed_or_none(inputs)
    if found is None:
        value: Any = _first_of_cut(inputs)
    elif isinstance(found, dict) and found:
        value = next(iter(found.values()))
    else:
        return None
    text = " ".join((value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)).split())
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _first_of_cut(text: str) -> Any:
    """Returns the first value of a JSON object whose text is cut, or the beginning of that value as text."""
    decoder = json.JSONDecoder()
    try:
        _, end = decoder.raw_decode(text, text.index('"'))
    except ValueError:
        return text
    rest = text[end:].lstrip(" \t\r\n:")
    try:
        return decoder.raw_decode(rest)[0]
    except (ValueError, RecursionError):
        return text_of(rest) if rest.startswith('"') else rest


WHOLE_ESCAPES = re.compile(
    r'(?:[^\\"]+|\\[^u]|\\u(?![dD][89abAB])[0-9a-fA-F]{4}|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[0-9a-fA-F]{4}'
    r"|\\u[dD][89abAB][0-9a-fA-F]{2}(?=[^\\]|\\[^u]))*"
)


class TextDecoder:
    """Decodes a JSON string literal that comes in pieces of UTF-8 to its text in UTF-8."""

    def __init__(self) -> None:
        self._waiting = b""
        self._begun = False

    def decode(self, piece: bytes, *, is_last: bool = False) -> bytes:
        data = self._waiting + piece
        end = len(data) if is_last else _end_of_characters(data)
        text, rest = data[:end].decode("utf-8", "replace"), data[end:]
        if not self._begun and text:
            self._begun, text = True, text.removeprefix('"')
        if is_last:
            text = text.removesuffix('"')
        found = WHOLE_ESCAPES.match(text)
        cut = len(text) if is_last or found is None else found.end()
        self._waiting = text[cut:].encode() + rest
        return text_of(f'"{text[:cut]}"').encode("utf-8", "replace")


def _end_of_characters(data: bytes) -> int:
    """Returns the length of the data without a character at its end that is cut."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte < 0x80:  # noqa: PLR2004 - the first byte after ASCII
            return len(data)
        if byte >= 0xC0:  # noqa: PLR2004 - the first byte of a character
            needed = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4  # noqa: PLR2004
            return len(data) if back >= needed else len(data) - back
    return len(data)
