"""What was deleted is nowhere in the database any more; nobody deletes who may not."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from psycopg.sql import SQL, Identifier

from api.deliveries import deliver
from api.runs import begin
from api.serving import GOOD, KEY_RING, unknown_id, until
from windlass.kickoffs.events import StoredEvent, to_json
from windlass.lifecycle.accept import Stops
from windlass.lifecycle.deletion import Deletions, KickoffsStillOpen, UserDeletion
from windlass.rights import Scope
from windlass.store.reporting import Batch, JournalEntry
from windlass.store.retention import LARGE, RetentionStore

if TYPE_CHECKING:
    from api.serving import Crew

pytestmark = pytest.mark.asyncio(loop_scope="session")


def marker_of(crew: Crew) -> str:
    """A text that no other test writes into the database."""
    return f"Rumpelstiltskin {crew.path}"


async def tables_with(crew: Crew, text: str) -> set[str]:
    """Every table of the database that has a row with this text in it, those of the side jobs too."""
    names = await crew.server.database.rows("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    found = set()
    for name in (row["tablename"] for row in names):
        query = SQL("SELECT FROM {} AS row WHERE row::text LIKE %(text)s LIMIT 1").format(Identifier(name))
        if await crew.server.database.rows(SQL(query.as_string()), {"text": f"%{text}%"}):
            found.add(name)
    return found


async def ran(crew: Crew, token: str | None = None, key: str = "order-7") -> str:
    """A kickoff that left something in every table, with the marker wherever text can be."""
    marker = marker_of(crew)
    given = {"inputs": GOOD | {"topic": marker}, "meta": {"who": marker}, "idempotencyKey": f"{key} {marker}"}
    answer = await crew.post({**given, "concurrencyKey": marker}, token=token)
    run = await begin(crew, kickoff := str(answer.json()["kickoff_id"]))
    await run.start_task(0)
    await run.end_task(0, marker)
    record = KEY_RING.seal(marker, f"journal:{kickoff}")
    event = StoredEvent(1, "printed", time.time(), to_json({"line": marker}))
    batch = Batch([event], entries=[JournalEntry(1, "key", record, position=0)])
    assert await run.store.write_reports(UUID(kickoff), run.claimed.attempt, batch)
    await run.succeed(marker, {"answer": marker})
    return kickoff


IN_THE_AUDIT_LOG = {"audit_log"}
"""Who deleted it is kept, with its id alone."""
LEFT = {"kickoffs", "task_records", "events", "journal", "attempts", "idempotency_keys"}


async def delete(crew: Crew, kickoff: str, query: str = "", token: str | None = None) -> tuple[int, dict[str, Any]]:
    """With a token that may delete, unless `token` says otherwise: the shown ones may not."""
    given = await crew.organization_token() if token is None else token
    answer = await crew.request("DELETE", f"/kickoffs/{kickoff}{query}", token=given)
    return answer.status_code, answer.json()


async def test_nothing_of_a_deleted_kickoff_is_left_in_any_table(crew: Crew) -> None:
    kickoff, other = await ran(crew), await ran(crew, key="order-8")
    assert await tables_with(crew, kickoff) == LEFT
    assert (await delete(crew, kickoff))[0] == 200
    assert await tables_with(crew, kickoff) == IN_THE_AUDIT_LOG
    assert await tables_with(crew, other) == LEFT
    assert (await crew.get(f"/status/{kickoff}")).status_code == 404
    assert (await delete(crew, kickoff))[0] == 404
    assert (await delete(crew, other))[0] == 200
    assert await tables_with(crew, marker_of(crew)) == set()


async def test_nothing_is_left_of_what_a_deleted_kickoff_asked_and_sent(crew: Crew) -> None:
    run = await begin(crew, kickoff := await crew.kickoff(crewWebhookUrl="http://127.0.0.1:9/"))
    await run.start_task(0)
    await run.ask()
    await crew.request("POST", f"/stop/{kickoff}")
    await deliver(crew)
    assert await tables_with(crew, kickoff) >= {"questions", "webhooks", "deliveries"}
    assert (await delete(crew, kickoff))[0] == 200
    assert await tables_with(crew, kickoff) == IN_THE_AUDIT_LOG


async def test_the_key_of_a_deleted_kickoff_is_free_again(crew: Crew) -> None:
    kickoff = await ran(crew)
    await delete(crew, kickoff)
    again = await ran(crew)
    assert again != kickoff
    await delete(crew, again)


async def test_only_an_organization_token_with_the_scope_admin_deletes(crew: Crew) -> None:
    kickoff = await ran(crew, crew.user_token)
    without = (await crew.server.tokens.create(crew.deployment.id, scopes=[Scope.READ, Scope.RUN])).reveal()
    stranger = await crew.token_of(f"stranger {crew.path}")
    for token in (without, stranger, crew.user_token, crew.token):
        status, body = await delete(crew, kickoff, token=token)
        assert (status, body["details"]) == (403, {"required_scope": "admin"})
        # It does not tell whether there is such a kickoff.
        assert (await delete(crew, unknown_id(), token=token)) == (status, body)
    other = await crew.server.crew()
    assert (await delete(crew, kickoff, token=await other.organization_token()))[0] == 401
    assert (await delete(other, kickoff))[0] == 404
    assert (await delete(crew, kickoff, token=""))[0] == 401
    assert await tables_with(crew, kickoff) == LEFT
    await delete(crew, kickoff)


async def test_one_that_has_not_ended_is_refused_with_what_to_do(crew: Crew) -> None:
    kickoff = await crew.kickoff()
    for _ in range(2):
        status, body = await delete(crew, kickoff)
        assert (status, body["details"]) == (409, {"kickoff_id": kickoff})
        assert f"Stop it first with POST /stop/{kickoff}" in body["message"]
        assert "?stop=true" in body["message"]
        await begin(crew, kickoff) if (await crew.row(kickoff))["state"] == "PENDING" else None
    assert (await crew.row(kickoff))["state"] == "STARTED"
    assert (await delete(crew, kickoff, "?stop=maybe"))[0] == 400


async def test_one_that_waits_is_stopped_and_deleted_when_asked(crew: Crew) -> None:
    kickoff = await crew.kickoff()
    assert (await delete(crew, kickoff, "?stop=true"))[0] == 200
    assert await tables_with(crew, kickoff) == IN_THE_AUDIT_LOG


async def test_one_that_runs_is_deleted_when_its_worker_has_ended_it(crew: Crew) -> None:
    run = await begin(crew, kickoff := await crew.kickoff())
    deleting = asyncio.create_task(delete(crew, kickoff, "?stop=true"))

    async def is_asked_to_stop() -> bool:
        return (await crew.row(kickoff))["stop_requested_at"] is not None

    await until(is_asked_to_stop, "asked to stop")
    assert not deleting.done()
    await run.succeed()
    assert (await deleting)[0] == 200
    assert await tables_with(crew, kickoff) == IN_THE_AUDIT_LOG


async def test_many_that_delete_the_same_at_once_delete_it_once(crew: Crew) -> None:
    kickoff = await ran(crew)
    answers = await asyncio.gather(*(delete(crew, kickoff) for _ in range(5)))
    assert sorted(status for status, _ in answers) == [200, 404, 404, 404, 404]


def users_of(crew: Crew, patience: float = 5.0) -> UserDeletion:
    server = crew.server
    deletions = Deletions(RetentionStore(server.database, at_once=2, rows_at_once=3))
    return UserDeletion(deletions, server.tokens, Stops(server.kickoffs), server.deployments, patience=patience)


async def end_retention(crew: Crew, kickoff: str) -> None:
    """Leaves the idempotency key of the kickoff, which is kept for a day."""
    store = RetentionStore(crew.server.database)
    for table in LARGE:
        await store.drop_rows(table, [UUID(kickoff)])
    await store.drop_kickoffs([UUID(kickoff)])
    assert await tables_with(crew, kickoff) == {"idempotency_keys"}


async def test_nothing_of_a_deleted_user_is_left_but_the_audit_log(crew: Crew) -> None:
    name = f"leaver of {crew.path}"
    token, other = await crew.token_of(name), await crew.server.crew()
    user = str(await crew.server.tokens.enabled_user(name))
    kickoffs = [await ran(crew, token, f"order-{number}") for number in range(5)]
    await end_retention(crew, await ran(crew, token, "order-5"))
    stayed = await crew.kickoff(token=crew.user_token)
    assert await tables_with(crew, user) == {"kickoffs", "idempotency_keys", "tokens", "users", "audit_log"}
    assert await users_of(other).delete(name, stop=False, data_only=False) == 5
    for text in (*kickoffs, user, name):
        assert await tables_with(crew, text) <= {"audit_log"}  # it keeps who had access, and who gave it
    assert await tables_with(crew, marker_of(crew)) == set()
    assert (await crew.get("/inputs", token=token)).status_code == 401
    assert (await crew.status(stayed))["state"] == "PENDING"


async def test_only_the_data_of_a_user_can_be_deleted_too(crew: Crew) -> None:
    name = f"keeper of {crew.path}"
    token = await crew.token_of(name)
    kickoff = await ran(crew, token)
    assert await users_of(crew).delete(name, stop=False, data_only=True) == 1
    assert await tables_with(crew, kickoff) == set()
    assert (await crew.get("/inputs", token=token)).status_code == 200


async def test_a_user_whose_kickoffs_are_open_is_refused_or_stopped_first(crew: Crew) -> None:
    name = f"busy of {crew.path}"
    token = await crew.token_of(name)
    waiting = await crew.kickoff(token=token)
    with pytest.raises(KickoffsStillOpen, match=r"1 kickoff of the user .* has not ended") as caught:
        await users_of(crew).delete(name, stop=False, data_only=False)
    assert "--stop" in caught.value.hint
    assert (await crew.status(waiting, token=token))["state"] == "PENDING"
    assert await users_of(crew).delete(name, stop=True, data_only=False) == 1
    assert await tables_with(crew, waiting) == set()


async def test_a_run_that_does_not_end_keeps_its_user_until_it_does(crew: Crew) -> None:
    name = f"stuck of {crew.path}"
    token = await crew.token_of(name)
    run = await begin(crew, kickoff := await crew.kickoff(token=token))
    with pytest.raises(KickoffsStillOpen, match="repeat the command"):
        await users_of(crew, patience=0.1).delete(name, stop=True, data_only=False)
    await run.succeed()
    assert await users_of(crew).delete(name, stop=True, data_only=False) == 1
    assert await tables_with(crew, kickoff) == set()
