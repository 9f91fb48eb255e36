"""Git repositories, and an HTTP server for them: git's own, behind Python's."""

from __future__ import annotations

import base64
import os
import subprocess
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import urlsplit

from projects_for_tests.making import written

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WHO = {f"GIT_{who}_{what}": "somebody@example.com" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


def git(folder: Path, *arguments: str) -> str:
    order = ["git", "-C", str(folder), *arguments]
    environment = {"PATH": os.defpath, **WHO, "GIT_CONFIG_NOSYSTEM": "1", "HOME": str(folder)}
    return subprocess.run(order, check=True, capture_output=True, text=True, env=environment).stdout.strip()


def repository(folder: Path, files: dict[str, str]) -> Path:
    """One with a commit of these files on the branch `main`."""
    folder.mkdir(parents=True)
    git(folder, "init", "--quiet", "--initial-branch=main")
    commit(folder, files)
    return folder


def commit(folder: Path, files: dict[str, str]) -> str:
    written(folder, files)
    git(folder, "add", "--all", "--force")
    git(folder, "commit", "--quiet", "--message", "change")
    return git(folder, "rev-parse", "HEAD")


class Handler(BaseHTTPRequestHandler):
    root: ClassVar[Path]
    password: ClassVar[str | None]
    answer: ClassVar[tuple[int, str] | None]
    seen: ClassVar[list[str]]

    def do_GET(self) -> None:
        expected = base64.b64encode(f"git:{self.password}".encode()).decode()
        self.seen.append(f"{self.headers['Host']}{self.path}")
        if self.answer:
            self._refuse(self.answer[0], "Location", self.answer[1])
        elif self.password and self.headers.get("Authorization") != f"Basic {expected}":
            self._refuse(401, "WWW-Authenticate", 'Basic realm="git"')
        else:
            self._run()

    do_POST = do_GET  # noqa: N815 - the name that http.server calls

    def _refuse(self, status: int, name: str, value: str) -> None:
        self.send_response(status)
        self.send_header(name, value)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _run(self) -> None:
        place = urlsplit(self.path)
        environment = {
            "PATH": os.defpath,
            "GIT_PROJECT_ROOT": str(self.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "REQUEST_METHOD": self.command,
            "PATH_INFO": place.path,
            "QUERY_STRING": place.query,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "HTTP_GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
        }
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        done = subprocess.run(["git", "http-backend"], input=body, capture_output=True, env=environment, check=False)
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        lines = [line.split(": ", 1) for line in head.decode().split("\r\n")]
        self.send_response(int(next((value.split()[0] for name, value in lines if name == "Status"), 200)))
        for name, value in lines:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(
    root: Path, *, password: str | None = None, answer: tuple[int, str] | None = None
) -> Iterator[tuple[int, list[str]]]:
    """The port of a server of the repositories in this folder, and the requests that it gets.

    With `answer` it sends each client elsewhere.
    """
    seen: list[str] = []
    members = {"root": root, "password": password, "answer": answer, "seen": seen}
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Here", (Handler,), members))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.server_port, seen
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
