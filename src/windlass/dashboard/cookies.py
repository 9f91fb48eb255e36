"""The cookies of the dashboard, except those of sessions and sign-ins."""

from __future__ import annotations

import hmac
from urllib.parse import parse_qsl, quote

NOTICE = "windlass_notice"
"""The cookie with the sentence that the next page shows."""
LONGEST_NOTICE = 3500
"""Characters of a notice as the cookie has it. Browsers keep 4,096 bytes."""
THEME = "windlass_theme"
THEMES = ("auto", "light", "dark")
TIMES, EXACT_TIMES = "windlass_times", "exact"
"""The cookie, and its value for times in full."""


class SignedNotices:
    """Signs the notices in cookies, so that another site of the same domain can't write one."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def write(self, text: str) -> str:
        while len(quote(text)) > LONGEST_NOTICE:
            text = text[: len(text) * 3 // 4]
        return f"{self._signature(text)}.{quote(text)}"

    def read(self, cookie: str | None) -> str | None:
        signature, _, quoted = (cookie or "").partition(".")
        text = dict(parse_qsl(f"text={quoted}")).get("text") if quoted else None
        return text if text and hmac.compare_digest(signature, self._signature(text)) else None

    def _signature(self, text: str) -> str:
        return hmac.digest(self._key, text.encode(), "sha256").hex()[:32]
