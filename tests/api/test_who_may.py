from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from api.described import check_error
from api.serving import GOOD, raw, unknown_id
from windlass.secrets.secret import TokenKind, new_token

if TYPE_CHECKING:
    from api.serving import Crew

pytestmark = pytest.mark.asyncio(loop_scope="session")

UNAUTHORIZED = {
    "error": "Unauthorized",
    "message": "The request needs a valid token of this crew: send the header `Authorization: Bearer <token>`. "
    "`windlass tokens show` prints the crew's tokens.",
    "details": {},
}
NO_KICKOFF = {
    "error": "Not Found",
    "message": "There is no kickoff with this id here. Check the kickoff_id that POST /kickoff returned.",
    "details": {},
}


async def is_refused(crew: Crew, authorization: str | bytes | None) -> None:
    """At every endpoint that needs a token."""
    given = authorization.encode() if isinstance(authorization, str) else authorization
    headers = {} if given is None else {b"Authorization": given}
    kickoff = await crew.kickoff()
    reading = [("GET", "/"), ("GET", "/inputs"), ("GET", f"/status/{kickoff}"), ("GET", f"/attempts/{kickoff}")]
    for method, path in [*reading, ("POST", "/kickoff"), ("POST", f"/stop/{kickoff}")]:
        answer = await crew.server.http.request(method, crew.base_url + path, headers=headers, json={"inputs": GOOD})
        assert answer.status_code == 401, (method, path)
        assert answer.headers["www-authenticate"] == "Bearer"
        assert answer.json() == UNAUTHORIZED
    assert (await crew.status(kickoff))["state"] == "PENDING"


async def test_no_token_is_refused(crew: Crew) -> None:
    await is_refused(crew, None)


@pytest.mark.parametrize(
    "form",
    [
        "",
        "Bearer",
        "{token}",
        "Basic {token}",
        "Basic YWRhOnBhc3N3b3Jk",
        "Token {token}",
        "Bearer{token}",
        "Bearer:{token}",
        "Bearer {token} {token}",
        "Bearer {token}, Bearer {token}",
        "Bearer {token}x",
        "Bearer {token}=",
        "Bearer x{token}",
        'Bearer "{token}"',
        "Bearer <{token}>",
        "Bearer null",
        "Bearer \t{token}",
        "Bearer wlo_" + "0" * 36,
        pytest.param("Bearer " + "x" * 65536, id="64 KiB"),
    ],
)
async def test_a_malformed_token_is_refused(crew: Crew, form: str) -> None:
    await is_refused(crew, form.format(token=crew.token))


async def test_a_token_with_a_wrong_checksum_is_refused(crew: Crew) -> None:
    last = "b" if crew.token[-1] == "a" else "a"
    await is_refused(crew, f"Bearer {crew.token[:-1]}{last}")


async def test_a_token_in_the_wrong_case_is_refused(crew: Crew) -> None:
    await is_refused(crew, f"Bearer {crew.token.swapcase()}")


@pytest.mark.parametrize("kind", list(TokenKind))
async def test_a_well_formed_token_that_nobody_made_is_refused(crew: Crew, kind: TokenKind) -> None:
    await is_refused(crew, f"Bearer {new_token(kind).reveal()}")


async def test_an_organization_token_relabelled_as_a_users_is_refused(crew: Crew) -> None:
    await is_refused(crew, f"Bearer wlu{crew.token[3:]}")


@pytest.mark.parametrize(
    "text", ["\N{LATIN SMALL LETTER E WITH ACUTE}", "\N{GREEK SMALL LETTER LAMDA}", "\N{FULLWIDTH DIGIT ONE}"]
)
async def test_a_token_with_more_than_ascii_is_refused(crew: Crew, text: str) -> None:
    await is_refused(crew, f"Bearer {crew.token}{text}".encode())
    await is_refused(crew, f"Bearer wlo_{text * 36}".encode())


async def test_a_revoked_token_is_refused(crew: Crew) -> None:
    token = await crew.organization_token()
    await crew.server.tokens.revoke(token[-4:])
    await is_refused(crew, f"Bearer {token}")


async def test_an_expired_token_is_refused(crew: Crew) -> None:
    token = await crew.organization_token(expires_at=datetime.now(UTC) - timedelta(seconds=1))
    answer = await crew.get("/inputs", token=token)
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert f"The token …{token[-4:]} expired on" in answer.json()["message"]


async def test_a_token_is_refused_from_the_moment_it_expires_though_it_was_used_before(crew: Crew) -> None:
    for seconds in (1, 5, 30):  # the machine may be too busy for the shorter ones
        end = datetime.now(UTC) + timedelta(seconds=seconds)
        token = await crew.organization_token(expires_at=end)
        if (before := await crew.get("/", token=token)).status_code == 200:
            break
    assert before.status_code == 200
    await asyncio.sleep(max(0, (end - datetime.now(UTC)).total_seconds()))
    assert (await crew.get("/", token=token)).status_code == 401


async def test_a_token_of_another_crew_is_refused(crew: Crew) -> None:
    other = await crew.server.crew()
    await is_refused(crew, f"Bearer {other.token}")
    await is_refused(crew, f"Bearer {other.user_token}")


async def test_two_tokens_are_refused_even_when_both_are_valid(crew: Crew) -> None:
    headers = [("Authorization", f"Bearer {crew.token}"), ("Authorization", f"Bearer {crew.token}")]
    answer = await crew.server.http.get(crew.base_url, headers=headers)
    assert answer.status_code == 401


@pytest.mark.parametrize("token", [b"", b"wlo_\x00", b"\x00", b"a\rb", b"a\x07b"])
async def test_a_header_that_no_client_library_would_send_is_refused(crew: Crew, token: bytes) -> None:
    request = b"GET %s/inputs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n" % (crew.path.encode(), token)
    status, headers, content = await raw(crew.server.port, request)
    assert status in {400, 401}
    check_error(status, headers, content)


async def test_the_word_bearer_may_be_written_in_any_case(crew: Crew) -> None:
    for word in ("bearer", "BEARER", "Bearer  "):
        answer = await crew.get("/inputs", token="", headers={"Authorization": f"{word} {crew.token}"})
        assert answer.status_code == 200


async def test_nobody_without_a_token_learns_which_crews_there_are(crew: Crew) -> None:
    unknown = await crew.server.http.get(f"{crew.server.url}/crews/nowhere/inputs")
    known = await crew.server.http.get(f"{crew.base_url}/inputs")
    assert (unknown.status_code, unknown.content) == (known.status_code, known.content)


async def test_a_token_for_all_deployments_opens_every_crew(crew: Crew) -> None:
    token = (await crew.server.tokens.create(None)).reveal()
    other = await crew.server.crew()
    for one in (crew, other):
        assert (await one.status(await one.kickoff(token=token), token=token))["state"] == "PENDING"


async def test_a_user_token_may_see_the_inputs_and_kick_off_and_see_its_own(crew: Crew) -> None:
    token = await crew.token_of(f"ada of {crew.path}")
    assert (await crew.get("/inputs", token=token)).status_code == 200
    assert (await crew.status(await crew.kickoff(token=token), token=token))["state"] == "PENDING"


async def test_the_organization_sees_every_users_kickoffs(crew: Crew) -> None:
    kickoff = await crew.kickoff(token=crew.user_token)
    assert (await crew.status(kickoff))["kickoff_id"] == kickoff


async def not_found(crew: Crew, kickoff: str, token: str | None = None) -> None:
    for path in (f"/status/{kickoff}", f"/{kickoff}/status", f"/status/{kickoff}?wait=10", f"/attempts/{kickoff}"):
        answer = await crew.get(path, token=token)
        assert (answer.status_code, answer.json()) == (404, NO_KICKOFF), path
    stopped = await crew.request("POST", f"/stop/{kickoff}", token=token)
    assert (stopped.status_code, stopped.json()) == (404, NO_KICKOFF)


async def test_another_users_kickoff_is_not_there(crew: Crew) -> None:
    stranger = await crew.token_of(f"charlie of {crew.path}")
    kickoffs = [await crew.kickoff(token=crew.user_token), await crew.kickoff()]
    for kickoff in kickoffs:
        await not_found(crew, kickoff, stranger)
        assert (await crew.status(kickoff))["state"] == "PENDING"


async def test_another_crews_kickoff_is_not_there_even_for_a_token_of_both(crew: Crew) -> None:
    other = await crew.server.crew()
    token = (await crew.server.tokens.create(None)).reveal()
    await not_found(crew, await other.kickoff(), token)


async def test_an_unknown_kickoff_is_not_there(crew: Crew) -> None:
    await not_found(crew, unknown_id())
    await not_found(crew, "00000000-0000-0000-0000-000000000000")


@pytest.mark.parametrize(
    "id_",
    [
        "x",
        "1",
        "%00",
        "-",
        "{hex}",
        "{{{id}}}",
        "urn:uuid:{id}",
        "{id}0",
        "{id}%20",
        pytest.param("x" * 5000, id="long"),
    ],
)
async def test_a_malformed_id_is_not_there_even_when_it_means_one_that_is(crew: Crew, id_: str) -> None:
    kickoff = await crew.kickoff()
    await not_found(crew, id_.format(id=kickoff, hex=kickoff.replace("-", "")))


async def test_an_id_is_the_same_in_upper_case(crew: Crew) -> None:
    kickoff = await crew.kickoff()
    assert (await crew.status(kickoff.upper()))["kickoff_id"] == kickoff
