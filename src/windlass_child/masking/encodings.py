"""The forms in which programs write a text: escaped, as hexadecimal digits, and in base64."""

from __future__ import annotations

import base64
import html
import json
from typing import TYPE_CHECKING
from urllib.parse import quote, quote_plus

if TYPE_CHECKING:
    from collections.abc import Callable

URL_ALPHABET = str.maketrans("+/", "-_")
FIRST_OWN = (0, 2, 3)
"""The first character of base64 that depends on a text alone, where 0, 1 or 2 bytes precede it in its group."""


def utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def from_utf8(data: bytes) -> str:
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return data.decode("utf-8", "replace")


def escaped(text: str) -> str:
    """Returns the text as it is within a JSON string."""
    return json.dumps(text)[1:-1]


def percent_lower(text: str) -> str:
    return "".join(one if one.isascii() and quote(one, safe="") == one else percents(one) for one in text)


def percents(character: str) -> str:
    return "".join(f"%{byte:02x}" for byte in utf8(character))


def quoted(text: str, safe: str = "") -> str:
    return quote(utf8(text), safe)


def backslashed(text: str, quote_mark: str) -> str:
    """Returns the text as it is in a Python literal with these quotation marks."""
    return text.replace("\\", "\\\\").replace(quote_mark, f"\\{quote_mark}")


def json_for_html(text: str) -> str:
    """Returns the text as encoders write it whose JSON may stand in HTML, such as that of Go."""
    return escaped(text).replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def html_decimal(text: str) -> str:
    return html.escape(text).replace("&#x27;", "&#39;").replace("&quot;", "&#34;")


def base64_whole(text: str) -> str:
    return base64.b64encode(utf8(text)).decode()


def base64_within(before: int) -> Callable[[str], str]:
    """Returns the function that gives the base64 of a text in longer data: the characters that depend on the text
    alone. `before` is how many bytes of its first group of three precede the text.
    """

    def encode(text: str) -> str:
        data = bytes(before) + utf8(text)
        return base64.b64encode(data).decode()[FIRST_OWN[before] : len(data) * 8 // 6]

    return encode


def for_urls(encode: Callable[[str], str]) -> Callable[[str], str]:
    return lambda text: encode(text).translate(URL_ALPHABET)


INNER = {f"base64_{before}": base64_within(before) for before in range(3)}
FORMS: dict[str, Callable[[str], str]] = {
    "text": str,
    "json": escaped,
    "json_utf8": lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    "json_twice": lambda text: escaped(escaped(text)),
    "json_html": json_for_html,
    "json_slash": lambda text: escaped(text).replace("/", "\\/"),
    "json_repr": lambda text: backslashed(escaped(text), "'"),
    "repr": lambda text: repr(text)[1:-1],
    "repr_single": lambda text: backslashed(text, "'"),
    "repr_double": lambda text: backslashed(text, '"'),
    "ascii": lambda text: ascii(text)[1:-1],
    "repr_bytes": lambda text: repr(utf8(text))[2:-1],
    "url": quoted,
    "url_component": lambda text: quoted(text, "!'()*"),
    "url_path": lambda text: quoted(text, "/"),
    "url_lower": percent_lower,
    "url_form": lambda text: quote_plus(utf8(text)),
    "html": html.escape,
    "html_apos": lambda text: html.escape(text).replace("&#x27;", "&apos;"),
    "html_text": lambda text: html.escape(text, quote=False),
    "html_decimal": html_decimal,
    "hex": lambda text: utf8(text).hex(),
    "hex_upper": lambda text: utf8(text).hex().upper(),
    "base64": base64_whole,
    "base64_url": for_urls(base64_whole),
    **INNER,
    **{f"{name}_url": for_urls(encode) for name, encode in INNER.items()},
}
NOT_ALONE = frozenset(name for name in FORMS if name.startswith(("base64_0", "base64_1", "base64_2")))
"""Forms whose surroundings depend on the text, too. In its place no other text can be written."""


OF_LETTERS = {name: FORMS[name] for name in FORMS if name in {"text", "hex", "hex_upper"} or name.startswith("base64")}
"""The forms of a text of ASCII letters and digits. Its other forms equal it."""
LONG = 8 * 1024
OF_LONG = {name: FORMS[name] for name in ("text", "json", "json_twice", "base64", *INNER)}
"""The forms of a text of more than LONG characters: their number decides on the memory that a search takes."""


def forms(text: str, shortest: int) -> dict[str, str]:
    """Returns the forms of a text with at least `shortest` characters by name, each different one once."""
    found: dict[str, str] = {}
    plain = text.isascii() and text.isalnum()
    for name, encode in (OF_LONG if len(text) > LONG else OF_LETTERS if plain else FORMS).items():
        form = encode(text)
        if len(form) >= shortest:
            found.setdefault(form, name)
    return {name: form for form, name in found.items()}
