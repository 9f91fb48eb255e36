"""Each example of docs/how-to/models.md: its variables lead crewai's own client to the vendor's server.

The clients of some vendors are extras of crewai. They are in the environment `instrumented` (Makefile).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from offline_model.vendor_server import TEXT, VendorServer
from projects_for_tests.environments import Environment

PAGE = (Path(__file__).parents[2] / "docs/how-to/models.md").read_text("utf-8")
SECTIONS = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
ADDRESSES = {
    "OpenAI": {"OPENAI_BASE_URL": "{url}/v1"},
    "Ollama": {"OLLAMA_HOST": "{url}"},
    "Bedrock": {"AWS_ENDPOINT_URL_BEDROCK_RUNTIME": "{url}"},
    "Anthropic": {"ANTHROPIC_BASE_URL": "{url}"},
    "Gemini": {"GOOGLE_GEMINI_BASE_URL": "{url}"},
    "Azure": {"AZURE_ENDPOINT": "{url}/openai/deployments/gpt-4o"},
}
WITH_CLIENTS = Environment("instrumented").python
SECONDS = 280
"""An environment that was just made has no byte code of its packages yet."""
INTERPRETERS = dict.fromkeys(("Anthropic", "Gemini", "Azure"), WITH_CLIENTS)
ASK = """
import os
from crewai import LLM
print(LLM(model=os.environ["MODEL"]).call("What moves the sea?"))
"""


def variables_of(section: str) -> dict[str, str]:
    (block,) = re.findall(r"^```ini\n(.*?)^```", SECTIONS[section], re.MULTILINE | re.DOTALL)
    return dict(line.split("=", 1) for line in block.splitlines() if "=" in line and not line.startswith("#"))


def test_the_page_has_a_section_for_each_vendor() -> None:
    assert set(ADDRESSES) <= SECTIONS.keys()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("vendor", ADDRESSES)
def test_the_variables_of_the_page_reach_the_vendor_with_crewai(vendor: str, tmp_path: Path) -> None:
    interpreter = INTERPRETERS.get(vendor, Path(sys.executable))
    assert interpreter.exists(), "its environment is missing: make .make/crewai/instrumented/built"
    machine = {
        "PATH": os.defpath,
        "HOME": str(tmp_path),
        "CREWAI_DISABLE_TELEMETRY": "true",
        "OTEL_SDK_DISABLED": "true",
    }
    with VendorServer() as server:
        own = {name: value.format(url=server.url) for name, value in ADDRESSES[vendor].items()}
        done = subprocess.run(
            [interpreter, "-c", ASK],
            check=False,
            capture_output=True,
            text=True,
            env={**machine, **variables_of(vendor), **own},
            cwd=tmp_path,
            timeout=SECONDS,
        )
    assert done.stdout.strip().endswith(TEXT), (done.stdout, done.stderr[-2000:])
    assert len(server.seen) == 1
