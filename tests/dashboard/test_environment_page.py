"""The variables of a crew in the dashboard."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from dashboard.people import Visitor
from windlass.deployments.credentials import GivenCredential
from windlass.deployments.env_files import parse_env_file
from windlass.rights import Role
from windlass.store.audit import COMMAND_LINE

if TYPE_CHECKING:
    from api.serving import Crew, Server

pytestmark = pytest.mark.asyncio(loop_scope="session")
KEPT = "sk-that-nobody-sees-again"


async def variables(server: Server, crew: Crew) -> dict[str, tuple[str | None, bool]]:
    rows = await server.dashboard.control.management.variables(crew.deployment.slug)
    return {row.name: (row.value, row.secret) for row in rows}


async def sealed(server: Server, crew: Crew, name: str) -> str | None:
    row = await server.database.row(
        "SELECT value FROM variables WHERE deployment_id = %(id)s AND name = %(name)s",
        {"id": crew.deployment.id, "name": name},
    )
    return row["value"] if row else None


async def test_variables_are_added_edited_and_removed(server: Server, crew: Crew, developer: Visitor) -> None:
    path = f"/ui/crews/{crew.deployment.slug}/environment"
    assert "No variables yet" in (await developer.get(path)).text

    added = await developer.post(f"{path}/add", name="DEPTH", source="value", value="two\r\nlines")
    assert (added.status_code, added.headers["location"]) == (303, path)
    assert await variables(server, crew) == {"DEPTH": ("two\nlines", False)}
    page = (await developer.get(path)).text
    assert "DEPTH is set. The next kickoff gets it." in page
    assert developer.name in page  # who changed it

    again = await developer.post(f"{path}/add", name="DEPTH", source="value", value="3")
    assert (again.status_code, "There is a variable DEPTH already." in again.text) == (400, True)
    assert (await developer.post(f"{path}/variables/DEPTH", source="value", value="3")).status_code == 303
    assert await variables(server, crew) == {"DEPTH": ("3", False)}
    assert (await developer.post(f"{path}/variables/DEPTH/remove")).status_code == 303
    assert await variables(server, crew) == {}
    assert (await developer.post(f"{path}/variables/DEPTH/remove")).status_code == 404


async def test_a_secret_value_is_kept_and_on_no_page(server: Server, crew: Crew, developer: Visitor) -> None:
    path = f"/ui/crews/{crew.deployment.slug}/environment"
    refused = await developer.post(f"{path}/add", name="1KEY", source="value", value=KEPT, secret="on")
    assert (refused.status_code, KEPT in refused.text) == (400, False)
    await developer.post(f"{path}/add", name="KEY", source="value", value=KEPT, secret="on")
    before = await sealed(server, crew, "KEY")

    form = await developer.get(f"{path}/variables/KEY")
    assert "Leave empty to keep the value" in form.text
    for page in (form, await developer.get(path)):
        assert KEPT not in page.text
    assert (await developer.post(f"{path}/variables/KEY", source="value", value="", secret="on")).status_code == 303
    assert await sealed(server, crew, "KEY") == before
    shown = await developer.post(f"{path}/variables/KEY", source="value", value="")
    assert (shown.status_code, "is never shown" in shown.text) == (400, True)
    assert await variables(server, crew) == {"KEY": (None, True)}


async def test_a_pasted_env_file_reads_nothing_of_the_environment_of_the_server(
    server: Server, crew: Crew, developer: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OF_THE_SERVER", KEPT)
    text = "DEPTH=2\nA=${OF_THE_SERVER}\nB=$OF_THE_SERVER\nC=${DEPTH}0\nD=${OF_THE_SERVER:-none}"
    path = f"/ui/crews/{crew.deployment.slug}/environment"
    answer = await developer.post(f"{path}/paste", text=text, secrets="plain")
    assert answer.status_code == 303
    found = await variables(server, crew)
    assert {name: value for name, (value, _) in found.items()} == {
        "DEPTH": "2",
        "A": "",
        "B": "$OF_THE_SERVER",
        "C": "20",
        "D": "none",
    }
    assert parse_env_file("A=${OF_THE_SERVER}", {"OF_THE_SERVER": "1"}) == {"A": "1"}, "as the command line does"


async def test_a_pasted_env_file_is_set_as_a_whole(server: Server, crew: Crew, developer: Visitor) -> None:
    path = f"/ui/crews/{crew.deployment.slug}/environment"
    wrong = await developer.post(f"{path}/paste", text=f"A=1\nKEY={KEPT}\nno line", secrets="by_name")
    assert (wrong.status_code, "Line 3 is no line" in wrong.text, KEPT in wrong.text) == (400, True, False)
    reserved = await developer.post(f"{path}/paste", text="A=1\nWINDLASS_HOME=/", secrets="by_name")
    assert (reserved.status_code, await variables(server, crew)) == (400, {})
    empty = await developer.post(f"{path}/paste", text="# nothing", secrets="by_name")
    assert empty.status_code == 400

    text = f"# of the crew\r\nDEPTH=2\r\nexport API_KEY='{KEPT}'\r\nURL=postgres://me:word@db/shop\r\n"
    answer = await developer.post(f"{path}/paste", text=text, secrets="by_name")
    assert answer.status_code == 303
    assert await variables(server, crew) == {"API_KEY": (None, True), "DEPTH": ("2", False), "URL": (None, True)}
    assert "3 variables are set, 2 of them secret." in (await developer.get(path)).text
    await developer.post(f"{path}/paste", text="API_KEY=x", secrets="plain")
    assert (await variables(server, crew))["API_KEY"] == ("x", False)


async def test_a_value_comes_from_a_secret_manager(server: Server, crew: Crew, developer: Visitor) -> None:
    path = f"/ui/crews/{crew.deployment.slug}/environment"
    configuration = {"token": "hvs.word", "address": "http://127.0.0.1:9"}
    given = GivenCredential("of-environment", "vault", "token", configuration, roles=["developer"])
    await server.dashboard.control.credentials.add(given, COMMAND_LINE)
    assert "of-environment" in (await developer.get(f"{path}/add")).text
    unnamed = await developer.post(f"{path}/add", name="DB", source="credential:of-environment", secret_name="")
    assert (unnamed.status_code, "needs the name of a secret" in unnamed.text) == (400, True)
    fields = {"source": "credential:of-environment", "secret_name": "app/db#password", "value": "", "secret": "on"}
    assert (await developer.post(f"{path}/add", name="DB", **fields)).status_code == 303
    page = (await developer.get(path)).text
    assert "DB is set. The next deploy reads its value." in page
    assert re.search(r"DB</b> waits for a deploy", page)
    assert "app/db#password" in page
    missing = await developer.post(f"{path}/add", name="LOST", source="default:azure", secret_name="a")
    assert (missing.status_code, "There is no default credential" in missing.text) == (400, True)
    assert (await developer.post(f"{path}/variables/DB", source="value", value="now direct")).status_code == 303
    assert (await variables(server, crew))["DB"] == ("now direct", False)


async def test_viewers_see_names_and_sources_alone(server: Server, crew: Crew, developer: Visitor) -> None:
    path = f"/ui/crews/{crew.deployment.slug}/environment"
    await developer.post(f"{path}/add", name="DEPTH", source="value", value="a value for developers")
    viewer = await Visitor.of(server, Role.VIEWER)
    page = await viewer.get(path)
    assert ("DEPTH" in page.text, "a value for developers" in page.text) == (True, False)
    for one in ("/add", "/paste", "/variables/DEPTH"):
        assert (await viewer.get(f"{path}{one}")).status_code == 403
    for one in ("/add", "/paste", "/variables/DEPTH", "/variables/DEPTH/remove", "/redeploy"):
        assert (await viewer.post(f"{path}{one}", name="OTHER", source="value", value="1")).status_code == 403
    assert await variables(server, crew) == {"DEPTH": ("a value for developers", False)}
    await viewer.close()
