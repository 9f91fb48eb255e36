"""Keeps the values of secret variables out of the journal: a marker stands for each of them.

A marker names the variable and the form in which its value was written. In the next attempt it is replaced by the
value that the variable has then, in the same form. Text of others can't contain a marker: each has the nonce of its
kickoff, which is known to nobody else, and names variables of the same kickoff only.
"""

# See docs/decisions/journal.md#a-marker-in-the-journal-names-a-variable

from __future__ import annotations

import hashlib
import json
import re
import secrets
from typing import TYPE_CHECKING, Any

from windlass_child.masking.encodings import FORMS, NOT_ALONE
from windlass_child.masking.secret_values import Part, SecretValues, replaced

if TYPE_CHECKING:
    from windlass_child.masking.secret_values import Form

NONCE_BYTES = 16
WHOLE = "-"
GONE = "a secret variable that it contains is not set any more, or has another structure"
CHANGED = "it contains a secret in an encoded form, and the secret has changed"


class Markers:
    """`nonce` is that of an entry to read, None to make a new one. Markers of one `level` are text for the others."""

    def __init__(self, values: SecretValues, nonce: str | None = None, level: str = "entry") -> None:
        self._values = values
        self.nonce = nonce or secrets.token_hex(NONCE_BYTES)
        self._beginning = f"[{level} {self.nonce} "
        self.used = False
        """Whether a marker was made."""

    def of_level(self, level: str) -> Markers:
        return Markers(self._values, self.nonce, level)

    def without_values(self, text: str) -> str:
        """Returns a text that is the same in each attempt, also when the secrets in it have changed."""
        return self._values.masked(text)

    def text_of(self, value: Any) -> str:
        """Returns the JSON text of a value, with markers in it. Raises as json.dumps does."""
        text = json.dumps(value, separators=(",", ":"))
        if not self._values.are_in(text):
            return text
        self.used = True
        return json.dumps(replaced(value, self._hidden), separators=(",", ":"))

    def shown(self, value: Any) -> Any:
        """Returns JSON with the values of this run in the places of the markers. Raises ValueError if one has none."""
        return replaced(value, self._shown)

    def read(self, text: str) -> Any:
        """Returns the value of a text of `text_of`."""
        value = json.loads(text)
        return self.shown(value) if self._beginning in text else value

    def _hidden(self, text: str) -> str:
        if not self._values.are_in(text):
            return text
        found = sorted((form for form in self._values.forms if form in text), key=len, reverse=True)
        if not found:
            return text
        any_of = re.compile("|".join(map(re.escape, found)))
        return any_of.sub(lambda match: self._marked(self._values.forms[match[0]]), text)

    def _marked(self, found: Form) -> str:
        part, form = found
        return f"{self._beginning}{part.name} {label(part)} {form} {self._digest(self._values.texts[part])}]"

    def _shown(self, text: str) -> str:
        if self._beginning not in text:
            return text
        return re.sub(re.escape(self._beginning) + r"(\S+) (\S+) (\S+) ([0-9a-f]+)\]", self._restored, text)

    def _restored(self, match: re.Match[str]) -> str:
        name, wanted, form, before = match.groups()
        parts = [part for part in self._values.texts if part.name == name and label(part) == wanted]
        if not parts or form not in FORMS:
            raise ValueError(GONE)
        value = self._values.texts[parts[0]]
        if form in NOT_ALONE and self._digest(value) != before:
            raise ValueError(CHANGED)
        return FORMS[form](value)

    def _digest(self, value: str) -> str:
        data = value.encode("utf-8", "surrogatepass")
        return hashlib.blake2b(data, key=self.nonce.encode(), digest_size=8).hexdigest()


def label(part: Part) -> str:
    """Returns the label of a part, as a word without its text."""
    data = part.label.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(data, digest_size=8).hexdigest() if part.label else WHOLE
