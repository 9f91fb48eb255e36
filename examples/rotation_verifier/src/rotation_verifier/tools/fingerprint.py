import hashlib
import os

from crewai.tools import BaseTool

VARIABLE = "DB_PASSWORD"


class Fingerprint(BaseTool):
    """Reads the secret when it is used. The secret is in no prompt, so no model gets it."""

    name: str = "fingerprint"
    description: str = "Returns a fingerprint of the password of the database. It does not reveal the password."

    def _run(self) -> str:
        value = os.environ.get(VARIABLE)
        if value is None:
            return f"The variable {VARIABLE} is not set."
        return f"sha256:{hashlib.sha256(value.encode()).hexdigest()[:12]}"
