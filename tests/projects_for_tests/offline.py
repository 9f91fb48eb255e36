"""Projects that find the offline model where they would find a provider's; it is served in a thread."""

from __future__ import annotations

import json
import socket
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any, Self

import uvicorn

from projects_for_tests.crews import FLOW_PRELUDE
from projects_for_tests.interrupted import MODEL, Kickoff
from projects_for_tests.making import written
from windlass.kickoffs.manifest import Manifest
from windlass.offline_model.app import model_environment, offline_model_app
from windlass.projects import recognise
from windlass_child.protocol.messages import Inspected

if TYPE_CHECKING:
    from pathlib import Path

    from starlette.types import Message, Receive, Scope, Send

    from projects_for_tests.driver import DrivenZygote

CHAT, EMBEDDINGS = "/v1/chat/completions", "/v1/embeddings"
SECONDS_TO_STOP = 60.0

CODE = FLOW_PRELUDE + MODEL + "os.environ.update(json.loads('''{environment}'''))\n"
"""What the code of such a project begins with."""


class OfflineModel:
    def __init__(self) -> None:
        self.requests: list[tuple[str, str]] = []
        self._app = offline_model_app()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listener.getsockname()
        config = uvicorn.Config(self._answer, log_level="warning", interface="asgi3", ws="none", lifespan="off")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._listener]})

    def code(self, text: str) -> str:
        environment = model_environment({}, f"http://127.0.0.1:{self.address[1]}")
        return CODE.replace("{environment}", json.dumps(environment)) + text

    def asked(self, path: str) -> list[str]:
        """The bodies of requests."""
        return [body for asked, body in self.requests if asked == path]

    @property
    def times(self) -> Counter[str]:
        return Counter(path for path, _ in self.requests)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(SECONDS_TO_STOP)
        assert not self._thread.is_alive()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = bytearray()

        async def received() -> Message:
            message = await receive()
            body.extend(message.get("body", b""))
            return message

        await self._app(scope, received, send)
        self.requests.append((scope["path"], body.decode()))


class Served:
    def __init__(self, zygote: DrivenZygote, folder: Path, files: dict[str, str]) -> None:
        self.root = written(folder / "project", files)
        self._zygote = zygote
        self._folder = folder

    def manifest(self) -> Manifest:
        child = self._zygote.fork()
        child.inspect(recognise(self.root).project, self._folder / "inspection")
        answer = child.answer()
        assert isinstance(answer, Inspected), answer
        return Manifest.from_json(answer.manifest)

    def kickoff(self, **inputs: Any) -> Kickoff:
        return Kickoff(self._zygote, recognise(self.root).project, self._folder, inputs=inputs)
