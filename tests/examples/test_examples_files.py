import importlib.util
import re
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from windlass.projects import recognise

pytestmark = pytest.mark.unit


EXAMPLES = Path(__file__).parents[2] / "examples"
CREW = EXAMPLES / "research_crew"


@pytest.fixture(scope="module")
def invoice() -> ModuleType:
    spec = importlib.util.spec_from_file_location("invoice", EXAMPLES / "invoice_function/invoice.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def line(quantity: float, unit_price: float, tax_percent: float) -> dict[str, object]:
    return {"text": "Oak board", "quantity": quantity, "unit_price": unit_price, "tax_percent": tax_percent}


def test_the_crew_asks_for_a_topic_and_an_audience() -> None:
    texts = [path.read_text() for path in (CREW / "src/research_crew/config").glob("*.yaml")]
    assert {name for text in texts for name in re.findall(r"{(.+?)}", text)} == {"topic", "audience"}


def test_the_crew_is_declared_as_crewai_declares_it() -> None:
    project = tomllib.loads((CREW / "pyproject.toml").read_text())
    assert project["tool"]["crewai"] == {"type": "crew"}
    assert project["project"]["scripts"]["run_crew"] == "research_crew.main:run"


def test_the_function_is_declared_by_its_entry_point(invoice: ModuleType) -> None:
    project = tomllib.loads((EXAMPLES / "invoice_function/pyproject.toml").read_text())
    module, function = project["tool"]["windlass"]["entrypoint"].split(":")
    assert module == "invoice"
    assert callable(getattr(invoice, function))


def test_an_invoice_is_added_up_for_each_tax_rate(invoice: ModuleType) -> None:
    assert invoice.total([line(3, 12.5, 19), line(1, 10, 7), line(2, 0.1, 7)]) == {
        "currency": "EUR",
        "net": "47.70",
        "tax": "7.84",
        "gross": "55.54",
        "rates": [
            {"tax_percent": "7", "net": "10.20", "tax": "0.71", "gross": "10.91"},
            {"tax_percent": "19", "net": "37.50", "tax": "7.13", "gross": "44.63"},
        ],
    }


def test_prices_may_include_the_tax_and_a_discount_comes_off_first(invoice: ModuleType) -> None:
    added = invoice.total([line(1, 238, 19)], currency="USD", discount_percent=50, prices_include_tax=True)
    assert (added["currency"], added["net"], added["tax"], added["gross"]) == ("USD", "100.00", "19.00", "119.00")


def test_an_invoice_without_lines_comes_to_nothing(invoice: ModuleType) -> None:
    assert invoice.total([]) == {"currency": "EUR", "net": "0.00", "tax": "0.00", "gross": "0.00", "rates": []}


def test_a_tax_rate_that_cannot_be_is_named_with_its_line(invoice: ModuleType) -> None:
    with pytest.raises(ValueError, match="tax_percent of line 2 is 190; it has to be between 0 and 100"):
        invoice.total([line(1, 1, 19), line(1, 1, 190)])


def test_there_is_an_example_of_each_kind() -> None:
    assert {path.name: recognise(path).project.kind for path in EXAMPLES.iterdir() if path.is_dir()} == {
        "research_crew": "crew",
        "rotation_verifier": "crew",
        "meeting_notes_crew": "json_crew",
        "triage_flow": "flow",
        "delivery_flow": "declarative_flow",
        "invoice_function": "function",
        "langgraph_function": "function",
        "pydantic_ai_function": "function",
    }
