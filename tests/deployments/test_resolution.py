"""Variables from secret managers: when their values are read, what a failure does, and what a kickoff records."""

from __future__ import annotations

import asyncio
import json
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import pytest

from deployments.builds_of_tests import KEYS, PROJECT, Server
from lifecycle.waiting import until
from patience import DEADLINE
from store.whole import events_of, loaded
from windlass.deployments import resolution, secret_reads
from windlass.deployments.resolution import DevVariables
from windlass.deployments.secret_reads import Connections
from windlass.deployments.variables import open_value
from windlass.kickoffs.ids import new_id
from windlass.kickoffs.states import State
from windlass.lifecycle.accept import Stops
from windlass.metrics import REGISTRY
from windlass.secrets.provider import AccessDenied, ProviderUnavailable
from windlass.store.audit import COMMAND_LINE
from windlass.store.variables import VariableStore

if TYPE_CHECKING:
    from uuid import UUID

    from windlass.store.reading import KickoffStatus

CODE = """
import hashlib, os

def run(names: list) -> dict:
    found = {name: os.environ.get(name) for name in names}
    return {name: value and hashlib.sha256(value.encode()).hexdigest() for name, value in found.items()}
"""
RETRIES = '[tool.windlass.retries]\nattempts = 2\nbackoff = 0.01\nreasons = ["secrets"]\n'
SEEN: dict[str, float] = {}
DENIED = AccessDenied("The credential may not read this secret.", "Grant it.")


def mark(value: str) -> str:
    return sha256(value.encode()).hexdigest()


async def built(server: Server, options: str = "") -> None:
    build = await server.build({"pyproject.toml": PROJECT + options}, CODE)
    assert build.state == "ready", (build.error, build.hint)


async def ran(server: Server, *names: str) -> KickoffStatus:
    return await server.result(await server.kickoff(names=list(names)))


async def seen(server: Server, *names: str) -> dict[str, str | None]:
    """Returns the marks of the values that a kickoff has."""
    status = await ran(server, *names)
    assert status.state is State.SUCCESS, status.error
    found: dict[str, str | None] = loaded(status.structured)
    return found


async def resolutions(server: Server, kickoff: UUID) -> list[dict[str, Any]]:
    rows = await events_of(server.kickoffs, kickoff)
    return [row["payload"] for row in rows if row["type"] == "secrets_resolved"]


def failures(cause: str) -> float:
    """Returns how many variables this process could not read, since the last call."""
    total = REGISTRY.get_sample_value("windlass_secret_failures_total", {"provider": "vault", "cause": cause}) or 0.0
    before, SEEN[cause] = SEEN.get(cause, 0.0), total
    return total - before


async def stored(server: Server, name: str) -> str | None:
    (row,) = await server.database.rows("SELECT value FROM variables WHERE name = %(name)s", {"name": name})
    return open_value(KEYS, server.deployment, name, row["value"]) if row["value"] else None


async def test_workload_identity_is_read_at_each_kickoff_and_static_at_each_build(server: Server) -> None:
    secrets = server.managers.secrets
    secrets["app/db"], secrets["app/key"] = '{"password": "first", "port": 5432}', "key one"
    rotating, static = await server.add_credential("rotating"), await server.add_credential("fixed", "token")
    await server.take_from(rotating, "PASSWORD", "app/db#password")
    await server.take_from(rotating, "PORT", "app/db#port")
    await server.take_from(static, "KEY", "app/key")
    await built(server)
    await server.worker()
    names = ("PASSWORD", "PORT", "KEY")
    assert await seen(server, *names) == {"PASSWORD": mark("first"), "PORT": mark("5432"), "KEY": mark("key one")}
    secrets["app/db"], secrets["app/key"] = '{"password": "second", "port": 5432}', "key two"
    assert await seen(server, "PASSWORD", "KEY") == {"PASSWORD": mark("second"), "KEY": mark("key one")}
    await built(server)
    assert await seen(server, "KEY") == {"KEY": mark("key two")}
    assert (await stored(server, "KEY"), await stored(server, "PASSWORD")) == ("key two", None)
    assert server.managers.reads == {"app/db": 5, "app/key": 2}  # two variables of one secret are one read
    assert sorted(server.managers.made) == ["fixed", "rotating"]


async def test_each_read_is_an_event_of_the_kickoff_without_the_value(server: Server) -> None:
    server.managers.secrets["app/db"] = "the password"
    await server.take_from(await server.add_credential("rotating"), "PASSWORD", "app/db")
    await built(server)
    await server.worker()
    status = await ran(server, "PASSWORD")
    (report,) = await resolutions(server, status.id)
    assert [(one["name"], one["credential"], one["secret_name"]) for one in report["variables"]] == [
        ("PASSWORD", "rotating", "app/db")
    ]
    assert "the password" not in str(report)


async def test_a_static_variable_that_is_set_after_the_build_waits_for_the_next(server: Server) -> None:
    server.managers.secrets["key"] = "the value"
    static = await server.add_credential("fixed", "token")
    await built(server)
    await server.worker()
    await server.take_from(static, "KEY", "key")
    status = await ran(server, "KEY")
    assert loaded(status.structured) == {"KEY": None}
    (warning,) = loaded(status.warnings)
    assert warning["code"] == "variable_not_deployed"
    assert "KEY" in warning["message"]
    assert "windlass deployments redeploy tea" in warning["message"]
    assert server.managers.reads == {}
    await built(server)
    status = await ran(server, "KEY")
    assert (loaded(status.structured), loaded(status.warnings)) == ({"KEY": mark("the value")}, [])


async def test_a_build_that_can_not_read_a_variable_fails_and_changes_no_value(server: Server) -> None:
    server.managers.secrets |= {"one": "old one", "two": "old two"}
    static = await server.add_credential("fixed", "token")
    await server.take_from(static, "ONE", "one")
    await server.take_from(static, "TWO", "two")
    await built(server)
    server.managers.secrets |= {"one": "new one", "two": DENIED}
    build = await server.build(code=CODE)
    assert build.state == "failed"
    assert build.error == (
        "TWO can't be read from vault (credential fixed): The credential may not read this secret. Grant it."
    )
    assert (await stored(server, "ONE"), await stored(server, "TWO")) == ("old one", "old two")
    version = await server.current()
    assert version is not None
    assert version.number == 1


async def test_the_value_of_a_variable_that_was_changed_during_the_build_is_not_stored(server: Server) -> None:
    server.managers.secrets |= {"one": "of one", "two": "of two"}
    static = await server.add_credential("fixed", "token")
    await server.take_from(static, "KEY", "one")
    event = server.managers.hold("one")
    building = asyncio.create_task(built(server))
    await until(lambda: answered(bool(server.managers.reads)))
    await server.database.execute("UPDATE variables SET secret_name = 'two' WHERE name = 'KEY'")
    event.set()
    await building
    assert await stored(server, "KEY") is None


async def test_a_failure_ends_the_kickoff_with_each_variable_and_cause(server: Server) -> None:
    server.managers.secrets |= {"good": "the good value", "bad": DENIED, "json": "[]"}
    credential = await server.add_credential("prod")
    await built(server)
    for cause in ("access_denied", "not_found", "json_key_not_found"):
        failures(cause)
    for name, secret in {"A": "good", "B": "bad", "C": "bad#x", "D": "json#x", "E": "nowhere"}.items():
        await server.take_from(credential, name, secret)
    await server.take_from("aws", "F", "any")
    await server.worker()
    status = await ran(server, "A")
    assert (status.state, status.reason, status.attempt) == (State.FAILED, "secrets", 1)
    assert status.error == (
        "B, C can't be read from vault (credential prod): The credential may not read this secret. Grant it. "
        "D can't be read from vault (credential prod): The secret is no JSON object, so it has no keys. "
        "Leave out `#` and what follows it. "
        "E can't be read from vault (credential prod): There is no such secret. Check its name. "
        "F can't be read from its provider: The provider aws has no default credential. "
        "Choose one: windlass credentials change NAME --default"
    )
    assert [failures(one) for one in ("access_denied", "not_found", "json_key_not_found")] == [2, 1, 1]
    (resolved,) = await resolutions(server, status.id)
    assert [(one["name"], one.get("error")) for one in resolved["variables"]] == [
        ("A", None),
        ("B", "access_denied"),
        ("C", "access_denied"),
        ("D", "json_key_not_found"),
        ("E", "not_found"),
        ("F", "no_credential"),
    ]
    assert resolved["variables"][0].keys() == {"name", "provider", "credential", "secret_name", "ms"}
    assert "the good value" not in json.dumps([resolved, status.error])
    assert {task["state"] for task in loaded(status.tasks)}.isdisjoint({"pending_run"})
    to_organization, to_user = [
        [row.type for row in await server.statuses.events(status.id, 0, 100, asker=asker)] for asker in (None, new_id())
    ]
    assert ("secrets_resolved" in to_organization, "secrets_resolved" in to_user) == (True, False)


async def test_a_manager_is_kept_for_a_credential_as_it_is_at_the_kickoff(server: Server) -> None:
    server.managers.secrets["key"] = "the value"
    await server.add_credential("first", default=True)
    await server.take_from("vault", "KEY", "key")
    await built(server)
    await server.worker()
    assert await seen(server, "KEY") == {"KEY": mark("the value")}
    await server.database.execute("UPDATE credentials SET is_default = false")
    await server.add_credential("second", default=True)
    assert await seen(server, "KEY") == {"KEY": mark("the value")}
    assert await seen(server, "KEY") == {"KEY": mark("the value")}
    assert (server.managers.made, server.managers.closed) == (["first", "second"], [])
    await server.database.execute("UPDATE credentials SET updated_at = clock_timestamp()")
    await seen(server, "KEY")
    await until(lambda: answered(server.managers.closed == ["second"]))
    assert server.managers.made == ["first", "second", "second"]


async def test_a_provider_that_is_away_is_asked_again_until_the_deadline(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secret_reads, "FIRST_PAUSE", 0.01)
    away = ProviderUnavailable("Vault does not answer.")
    server.managers.secrets |= {"key": "the value"}
    await server.take_from(await server.add_credential("prod"), "KEY", "key")
    await built(server)
    await server.worker()
    server.managers.secrets["key"] = away
    kickoff = await server.kickoff(names=["KEY"])
    await until(lambda: answered(server.managers.reads["key"] > 3))
    server.managers.secrets["key"] = "the value"
    assert loaded((await server.result(kickoff)).structured) == {"KEY": mark("the value")}
    monkeypatch.setattr(resolution, "DEADLINE", 0.2)
    server.managers.secrets["key"] = away
    status = await ran(server, "KEY")
    assert (status.reason, status.error) == (
        "secrets",
        "KEY can't be read from vault (credential prod): Vault does not answer.",
    )
    event = server.managers.hold("key")
    assert "did not answer within 0.2 s" in ((await ran(server, "KEY")).error or "")
    event.set()


async def test_a_kickoff_that_waits_for_its_secrets_shows_so_and_can_be_stopped(server: Server) -> None:
    server.managers.secrets["key"] = "the value"
    await server.take_from(await server.add_credential("prod"), "KEY", "key")
    await built(server)
    await server.worker()
    event = server.managers.hold("key")
    kickoff = await server.kickoff(names=["KEY"])
    await server.waits_for(kickoff, "secrets")
    await Stops(server.kickoffs).stop(kickoff, COMMAND_LINE)
    status = await server.result(kickoff)
    assert (status.state, server.managers.reads) == (State.CANCELLED, {"key": 2})
    event.set()


async def test_the_timeout_of_a_kickoff_counts_while_its_secrets_are_read(server: Server) -> None:
    server.managers.secrets["key"] = "the value"
    await server.take_from(await server.add_credential("prod"), "KEY", "key")
    await built(server, "[tool.windlass.limits]\ntimeout = 0.3\n")
    await server.worker()
    event = server.managers.hold("key")
    status = await ran(server, "KEY")
    event.set()
    assert status.state is State.TIMED_OUT


@pytest.mark.parametrize(("options", "attempts"), [(RETRIES, 2), ("", 1)])
async def test_a_project_may_name_the_reason_for_another_attempt(server: Server, options: str, attempts: int) -> None:
    server.managers.secrets["key"] = "the value"
    await server.take_from(await server.add_credential("prod"), "KEY", "key")
    await built(server, options)
    await server.worker()
    server.managers.secrets["key"] = DENIED
    status = await ran(server, "KEY")
    assert (status.reason, status.attempt, len(await resolutions(server, status.id))) == ("secrets", attempts, attempts)


async def test_the_values_have_a_bound_together(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolution, "MOST_BYTES", 10)
    server.managers.secrets |= {"one": "12345", "two": "123456"}
    credential = await server.add_credential("prod")
    await built(server)
    await server.worker()
    await server.take_from(credential, "ONE", "one")
    assert await seen(server, "ONE") == {"ONE": mark("12345")}
    await server.take_from(credential, "TWO", "two")
    status = await ran(server, "ONE")
    assert status.reason == "secrets"
    assert (status.error or "").startswith("ONE, TWO can't be read")


async def test_an_unexpected_error_of_a_client_is_not_quoted(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    server.managers.secrets["key"] = RuntimeError("the value is hunter2")
    await server.take_from(await server.add_credential("prod"), "KEY", "key")
    await server.worker()
    build = await server.build(code=CODE)
    assert build.error == (
        "KEY can't be read from vault (credential prod): The client of the provider vault failed (RuntimeError)."
    )
    assert "hunter2" not in caplog.text


async def test_reads_with_one_credential_are_bounded_also_when_their_callers_give_up(server: Server) -> None:
    server.managers.secrets["key"] = "the value"
    await server.add_credential("prod")
    (credential,) = await server.resolver._credentials.all()
    connections = Connections(server.managers.connect, at_once=2, unused=-1.0)
    event = server.managers.hold("key")
    late = [asyncio.create_task(connections.of(credential).answer("key", 0.05)) for _ in range(5)]
    assert [answer.error is not None for answer in await asyncio.gather(*late)] == [True] * 5
    assert server.managers.reads == {"key": 2}
    event.set()
    answer = await connections.of(credential).answer("key", DEADLINE)
    assert (answer.value, answer.error) == ("the value", None)
    connections.close_unused()
    await until(lambda: answered(server.managers.closed == ["prod"]))
    assert (await connections.of(credential).answer("key", DEADLINE)).value == "the value"
    connections.close()
    await until(lambda: answered(server.managers.closed == ["prod", "prod"]))


async def test_a_server_without_threads_gives_back_the_turn(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.managers.secrets["key"] = "the value"
    await server.add_credential("prod")
    (credential,) = await server.resolver._credentials.all()
    connections = Connections(server.managers.connect, at_once=1)
    with monkeypatch.context() as patch:
        patch.setattr("threading.Thread.start", no_thread)
        answer = await connections.of(credential).answer("key", 0.05)
    assert isinstance(answer.error, ProviderUnavailable)
    assert (await connections.of(credential).answer("key", DEADLINE)).value == "the value"
    connections.close()


async def test_each_load_under_dev_is_a_deploy(server: Server) -> None:
    server.managers.secrets |= {"fixed": "old", "rotating": "value"}
    store = VariableStore(server.database)
    variables = DevVariables(server.deployments, store, server.resolver)
    lines: list[str] = []
    assert await variables.read("nothing", lines.append) == {}
    await server.take_from(await server.add_credential("static", "token"), "FIXED", "fixed")
    await server.take_from(await server.add_credential("prod"), "ROTATING", "rotating")
    assert await variables.read("tea", lines.append) == {"FIXED": "old", "ROTATING": "value"}
    assert (await stored(server, "FIXED"), await stored(server, "ROTATING")) == ("old", None)
    server.managers.secrets |= {"fixed": "new", "rotating": DENIED}
    assert await variables.read("tea", lines.append) == {"FIXED": "old"}
    (line,) = lines
    assert line.startswith("warning: ROTATING can't be read from vault (credential prod): ")


def no_thread(_: object) -> None:
    raise RuntimeError("can't start new thread")


async def answered(value: object) -> object:
    return value


async def test_a_credential_whose_list_was_narrowed_stops_at_the_next_kickoff(server: Server) -> None:
    server.managers.secrets |= {"app/db": "the password", "app/key": "the key"}
    for method, variable in (("workload_identity", "PASSWORD"), ("token", "KEY")):
        credential = await server.add_credential(f"of-{method.replace('_', '-')}", method)
        await server.take_from(credential, variable, {"PASSWORD": "app/db", "KEY": "app/key"}[variable])
    await built(server)
    await server.worker()
    assert await seen(server, "PASSWORD", "KEY") == {"PASSWORD": mark("the password"), "KEY": mark("the key")}
    reads = dict(server.managers.reads)
    await server.database.execute(
        "UPDATE credentials SET roles = '{}', deployment_ids = ARRAY[gen_random_uuid()], updated_by = NULL"
    )
    status = await ran(server, "PASSWORD", "KEY")
    assert (status.state, status.reason) == (State.FAILED, "secrets")
    for name, of in (("PASSWORD", "of-workload-identity"), ("KEY", "of-token")):
        assert f"{name} can't be read from vault (credential {of}): The credential {of} is not" in str(status.error)
    assert "Ask an owner of the server to permit it: windlass credentials change" in str(status.error)
    assert server.managers.reads == reads  # nothing was read
    (report,) = await resolutions(server, status.id)
    assert {one["error"] for one in report["variables"]} == {"credential_not_permitted"}
    await server.database.execute("UPDATE credentials SET deployment_ids = ARRAY(SELECT id FROM deployments)")
    assert await seen(server, "PASSWORD", "KEY") == {"PASSWORD": mark("the password"), "KEY": mark("the key")}


async def test_without_a_list_a_credential_is_for_variables_that_owners_have_set(server: Server) -> None:
    server.managers.secrets["app/db"] = "the password"
    await server.take_from(await server.add_credential("prod"), "PASSWORD", "app/db")
    await built(server)
    await server.worker()
    await server.database.execute("UPDATE credentials SET roles = '{}', deployment_ids = '{}'")
    for role, state in (("owner", State.SUCCESS), ("developer", State.FAILED)):
        await server.database.execute("UPDATE variables SET set_as = %(role)s", {"role": role})
        assert (await ran(server, "PASSWORD")).state is state
    build = await server.build(code=CODE)
    assert (build.state, "is not permitted for this deployment" in str(build.error)) == ("failed", True)
