"""docs/how-to/secrets-*.md and the values of `windlass admin identity` are right: messages, options, and commands of
Vault.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from secrets_managers.token_issuer import ORGANIZATION, OTHER_ORGANIZATION, subject_of
from secrets_managers.vault_server import BINARY, ROOT_TOKEN, openbao
from windlass.secrets.provider import CredentialRefused
from windlass.secrets.providers import NAMES, provider
from windlass.secrets.providers.endpoints import ADDRESSES, CA_FILE

if TYPE_CHECKING:
    from secrets_managers.token_issuer import TokenIssuer

pytestmark = pytest.mark.xdist_group("secrets_managers")

ROOT = Path(__file__).parents[2]


def page(name: str) -> str:
    return (ROOT / "docs" / "how-to" / f"secrets-{name}.md").read_text("utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_the_messages_on_the_page_are_those_of_the_code(name: str) -> None:
    code = (ROOT / f"src/windlass/secrets/providers/{name}/manager.py").read_text("utf-8")
    code += (ROOT / "src/windlass/secrets/providers/network.py").read_text("utf-8")
    table = page(name).partition("## When it fails")[2]
    messages = re.findall(r"^\| ([A-Z][^|]+?) \| [^|]+\|$", table, re.MULTILINE)
    assert len(messages) >= 4
    for message in messages:
        for part in re.split(r"\.\.\.\)?|Vault can't be used now: it ", message):
            assert part in code, message


@pytest.mark.parametrize("name", NAMES)
def test_the_page_names_each_method_and_its_members(name: str) -> None:
    text = page(name)
    for method, model in provider(name).methods.items():
        assert f"--method {method}" in text or f"the method `{method}`" in text
        for member, field in model.model_fields.items():
            option = f"--{member.replace('_', '-')}"
            assert option in text or "SecretStr" in str(field.annotation), option


def test_the_page_of_aws_lists_the_endpoints() -> None:
    found = re.findall(r"`((?:aws|google|azure)\.\w+)`", page("aws"))
    assert found == [*ADDRESSES, CA_FILE]


def test_the_commands_for_vault_make_it_trust_this_server_and_no_other(issuer: TokenIssuer) -> None:
    with openbao() as address:
        commands = provider("vault").identity_values(issuer.url, subject_of(ORGANIZATION)).commands
        first = re.findall(r"^ *(vault kv put .*)$", page("vault"), re.MULTILINE)[0]
        lines = f"{first}\n{commands}".replace("ADDRESS_OF_VAULT", address)
        script = re.sub(r"\bvault (?=auth|write|policy|kv)", f"{BINARY} ", lines)
        environment = {"BAO_ADDR": address, "BAO_TOKEN": ROOT_TOKEN, "HOME": "/nonexistent", "PATH": "/usr/bin:/bin"}
        subprocess.run(["bash", "-euo", "pipefail", "-c", script], env=environment, check=True, capture_output=True)
        model = provider("vault").methods["workload_identity"].model_validate({"address": address, "role": "windlass"})
        manager = provider("vault").connect(model, issuer.token)
        assert json.loads(manager.read("app/db")) == {"user": "app", "password": "first"}
        stranger = provider("vault").connect(
            model, lambda audience: issuer.token(audience, organization=OTHER_ORGANIZATION)
        )
        with pytest.raises(CredentialRefused):
            stranger.read("app/db")
