"""GET /files: the list, each file, and all of them as a zip."""

from __future__ import annotations

import hashlib
import io
import zipfile
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import httpx
import pytest

from api.runs import Run, begin
from api.serving import raw, unknown_id
from windlass.api.crew_api.files import attachment
from windlass.kickoffs.files import CHUNK, FileChanges, StoredFile, media_type_of
from windlass.kickoffs.ids import new_id
from windlass.kickoffs.outcome import Outcome, TokenUsage
from windlass.kickoffs.states import State
from windlass.rights import Scope

if TYPE_CHECKING:
    from api.serving import Crew

pytestmark = pytest.mark.asyncio(loop_scope="session")

LARGE = bytes(range(256)) * (2 * CHUNK // 256) + b"the end"
FILES = {"out/report.md": b"# Tides\n", "page.html": b"<script>alert(1)</script>", "large.bin": LARGE, "empty": b""}


async def stored(run: Run, path: str, content: bytes) -> StoredFile:
    file = StoredFile(path, len(content), hashlib.sha256(content).digest(), media_type_of(path), new_id())
    for position, at in enumerate(range(0, len(content), CHUNK)):
        chunk = content[at : at + CHUNK]
        assert await run.store.files.append(run.claimed.id, run.claimed.attempt, file.content, position, chunk)
    return file


async def with_files(crew: Crew, files: dict[str, bytes], **kickoff: Any) -> str:
    """A kickoff that has succeeded and left these files."""
    found = await crew.kickoff(**kickoff)
    run = await begin(crew, found)
    changes = FileChanges(len(files), [await stored(run, path, content) for path, content in files.items()])
    done = Outcome(State.SUCCESS, output="done")
    assert await run.store.settle(run.claimed.id, run.claimed.attempt, done, TokenUsage(), [], changes=changes)
    return found


async def get(crew: Crew, path: str, method: str = "GET", **headers: str) -> httpx.Response:
    """Without a look into the document, which does not describe the content of files."""
    given = {
        "Authorization": f"Bearer {crew.token}",
        **{name.replace("_", "-"): text for name, text in headers.items()},
    }
    return await crew.server.http.request(method, crew.base_url + path, headers=given)


async def test_the_status_and_the_list_name_each_file(crew: Crew) -> None:
    kickoff = await with_files(crew, FILES)
    answer = (await crew.get(f"/files/{kickoff}")).json()
    assert answer["kickoff_id"] == kickoff
    assert [file["path"] for file in answer["files"]] == sorted(FILES)
    assert answer["files"][3] == {
        "path": "page.html",
        "size": 25,
        "sha256": hashlib.sha256(FILES["page.html"]).hexdigest(),
        "media_type": "text/html",
    }
    status = await crew.status(kickoff)
    assert (status["files"], status["file_count"]) == (answer["files"], 4)
    live = await crew.status(kickoff, token=await crew.organization_token(profile="live"))
    assert (live["result"], live["files"]) == ("done", answer["files"])


async def test_a_kickoff_without_files_has_an_empty_list_and_an_empty_zip(crew: Crew) -> None:
    kickoff = await crew.kickoff()
    assert (await crew.get(f"/files/{kickoff}")).json()["files"] == []
    assert "files" not in await crew.status(kickoff)
    with zipfile.ZipFile(io.BytesIO((await get(crew, f"/files/{kickoff}.zip")).content)) as archive:
        assert archive.namelist() == []


async def test_a_status_lists_100_files_and_counts_all(crew: Crew) -> None:
    kickoff = await with_files(crew, {f"{number:03}": b"" for number in range(130)})
    status = await crew.status(kickoff)
    assert ([file["path"] for file in status["files"]], status["file_count"]) == ([f"{n:03}" for n in range(100)], 130)
    assert len((await crew.get(f"/files/{kickoff}")).json()["files"]) == 130


@pytest.mark.parametrize("path", FILES)
async def test_a_file_comes_whole_and_as_an_attachment(crew: Crew, path: str) -> None:
    kickoff = await with_files(crew, FILES)
    answer = await get(crew, f"/files/{kickoff}/{path}")
    assert (answer.status_code, answer.content) == (200, FILES[path])
    assert answer.headers["content-length"] == str(len(FILES[path]))
    assert answer.headers["content-type"] == media_type_of(path)
    assert answer.headers["content-disposition"].startswith("attachment;")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-security-policy"] == "sandbox; default-src 'none'"
    assert answer.headers["cache-control"] == "private, no-cache"
    assert answer.headers["etag"] == f'"{hashlib.sha256(FILES[path]).hexdigest()}"'
    head = await get(crew, f"/files/{kickoff}/{path}", "HEAD")
    assert (head.content, dict(head.headers) | {"date": ""}) == (b"", dict(answer.headers) | {"date": ""})


async def test_an_etag_that_is_known_gets_no_content(crew: Crew) -> None:
    kickoff = await with_files(crew, FILES)
    etag = (await get(crew, f"/files/{kickoff}/page.html", "HEAD")).headers["etag"]
    for known in (etag, f"W/{etag}", f'"other", {etag}', "*"):
        answer = await get(crew, f"/files/{kickoff}/page.html", If_None_Match=known)
        assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", etag)
    assert (await get(crew, f"/files/{kickoff}/page.html", If_None_Match='"other"')).status_code == 200


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("bytes=0-9", slice(0, 10)),
        (f"bytes={CHUNK - 3}-{CHUNK + 2}", slice(CHUNK - 3, CHUNK + 3)),
        (f"bytes={CHUNK}-", slice(CHUNK, None)),
        ("bytes=-7", slice(-7, None)),
        ("bytes=5-999999999", slice(5, None)),
    ],
)
async def test_a_range_of_a_file(crew: Crew, asked: str, found: slice) -> None:
    kickoff = await with_files(crew, {"large.bin": LARGE})
    answer = await get(crew, f"/files/{kickoff}/large.bin", Range=asked)
    assert (answer.status_code, answer.content) == (206, LARGE[found])
    start = found.indices(len(LARGE))[0]
    assert answer.headers["content-range"] == f"bytes {start}-{start + len(answer.content) - 1}/{len(LARGE)}"


async def test_ranges_that_are_not_there_or_not_understood(crew: Crew) -> None:
    kickoff = await with_files(crew, {"file": b"12345", "empty": b""})
    for path, asked in (("file", "bytes=5-"), ("file", "bytes=3-2"), ("file", "bytes=-0"), ("empty", "bytes=0-0")):
        answer = await get(crew, f"/files/{kickoff}/{path}", Range=asked)
        assert (answer.status_code, answer.headers["content-range"][:8]) == (416, "bytes */"), asked
    for asked in ("bytes=0-1,3-4", "lines=1-2", "bytes=a-b", "bytes=-"):
        assert (await get(crew, f"/files/{kickoff}/file", Range=asked)).content == b"12345", asked
    other = await get(crew, f"/files/{kickoff}/file", Range="bytes=0-1", If_Range='"another"')
    assert (other.status_code, other.content) == (200, b"12345")


async def test_all_files_as_one_zip(crew: Crew) -> None:
    kickoff = await with_files(crew, FILES)
    answer = await get(crew, f"/files/{kickoff}.zip")
    assert answer.headers["content-disposition"].startswith(f'attachment; filename="{kickoff}.zip"')
    assert answer.headers["content-security-policy"] == "sandbox; default-src 'none'"
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert archive.testzip() is None
        assert {name: archive.read(name) for name in archive.namelist()} == FILES
    head = await get(crew, f"/files/{kickoff}.zip", "HEAD")
    assert (head.status_code, head.content, head.headers["content-type"]) == (200, b"", "application/zip")
    assert "content-length" not in head.headers


@pytest.mark.parametrize("path", ["nothing", "out", "out/", "OUT/report.md", "page.html/more", "a%00b", "a%0Ab", "%ff"])
async def test_a_path_without_a_file_is_not_found(crew: Crew, path: str) -> None:
    kickoff = await with_files(crew, FILES)
    assert (await get(crew, f"/files/{kickoff}/{path}")).status_code == 404


@pytest.mark.parametrize("path", ["out%2Freport.md", "..%2F..%2Fetc%2Fpasswd", "../../etc/passwd", "a%5Cb"])
async def test_a_path_that_a_proxy_could_read_otherwise_is_refused(crew: Crew, path: str) -> None:
    kickoff = await with_files(crew, FILES)
    head = f"GET {crew.path}/files/{kickoff}/{path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {crew.token}"
    status, _, _ = await raw(crew.server.port, f"{head}\r\n\r\n".encode())
    assert status == 400


async def test_names_of_any_language_reach_the_client(crew: Crew) -> None:
    name = "Straße \N{HIRAGANA LETTER A} 100% #1?.md"
    kickoff = await with_files(crew, {f"out/{name}": b"x"})
    answer = await get(crew, f"/files/{kickoff}/{quote(f'out/{name}')}")
    assert (answer.status_code, answer.content) == (200, b"x")
    assert answer.headers["content-disposition"] == (
        f"attachment; filename=\"Stra_e___100___1_.md\"; filename*=UTF-8''{quote(name, safe='')}"
    )


@pytest.mark.parametrize("name", ['a"; filename=b.exe', "a\r\nSet-Cookie: x", "a\\b", "ä", "a;b", "a'b"])
async def test_no_name_breaks_its_header(name: str) -> None:
    found = attachment(name)
    assert found.isascii()
    assert found.isprintable()
    assert found.count('"') == 2


async def test_files_are_seen_by_those_who_see_the_kickoff(crew: Crew) -> None:
    mine, other = await crew.token_of("ann-of-files"), await crew.token_of("ben-of-files")
    kickoff = await with_files(crew, FILES, token=mine)
    for path in (f"/files/{kickoff}", f"/files/{kickoff}.zip", f"/files/{kickoff}/page.html"):
        for token, status in ((mine, 200), (crew.token, 200), (other, 404), ("wlo_nobody", 401)):
            headers = {"Authorization": f"Bearer {token}"}
            answer = await crew.server.http.get(crew.base_url + path, headers=headers)
            assert answer.status_code == status, (path, status)
        elsewhere = await crew.server.crew()
        assert (await get(elsewhere, path)).status_code == 404
    starter = await crew.server.tokens.create(crew.deployment.id, scopes=[Scope.RUN])
    answer = await crew.get(f"/files/{kickoff}", token=starter.reveal())
    assert (answer.status_code, answer.json()["details"]) == (403, {"required_scope": "read"})
    for unknown in (unknown_id(), "x"):
        assert (await get(crew, f"/files/{unknown}/page.html")).status_code == 404


async def test_a_file_that_is_deleted_while_it_is_sent_breaks_off(crew: Crew) -> None:
    """Its client notices that the answer is too short."""
    kickoff = await with_files(crew, {"large.bin": LARGE})
    await crew.server.database.execute("DELETE FROM file_chunks WHERE position = 1")
    with pytest.raises(httpx.RemoteProtocolError):
        await get(crew, f"/files/{kickoff}/large.bin")


async def test_a_deleted_kickoff_leaves_no_file(crew: Crew) -> None:
    kickoff = await with_files(crew, FILES)
    deleted = await crew.request("DELETE", f"/kickoffs/{kickoff}", token=await crew.organization_token())
    assert deleted.status_code == 200
    for table in ("files", "file_chunks"):
        query = f"SELECT FROM {table} WHERE kickoff_id = %(id)s::uuid"
        assert await crew.server.database.rows(query, {"id": kickoff}) == []
