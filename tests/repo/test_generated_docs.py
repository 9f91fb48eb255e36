"""Tables of the documentation that follow from the code are current, and each setting of a crew is declared once."""

from __future__ import annotations

from dataclasses import fields
from typing import get_args, get_type_hints

import pytest

from repo.generated_docs import DOCS, PAGES
from windlass.dashboard.setting_fields import FIELDS
from windlass.deployments.settings import DeploymentSettings
from windlass.kickoffs.declared_settings import declared
from windlass.projects.options import SETTINGS, Options


@pytest.mark.parametrize("page", PAGES)
def test_the_generated_tables_of_a_page_are_current(page: str) -> None:
    text = (DOCS / page).read_text("utf-8")
    assert text == PAGES[page](text), "run `make docs`"


def test_pages_and_api_have_every_declared_setting() -> None:
    assert {field.name for field in FIELDS} == {one.name for one in SETTINGS if one.by != "project"}
    assert DeploymentSettings.model_fields.keys() == {field.name.split(".")[0] for field in FIELDS}
    assert declared(Options).keys() == {one.name for one in fields(Options)}


def test_the_words_of_a_choice_are_those_of_its_type() -> None:
    hints = get_type_hints(Options)
    for name, one in declared(Options).items():
        if one.kind.form == "choice":
            assert get_args(hints[name]) == tuple(one.kind.words), name
