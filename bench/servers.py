"""The servers that are compared: python -m bench.servers NAME PORT. Each is one process; PostgreSQL is the same for
all.

BENCH_DATABASE names the database. A server prints one line, JSON of what a client needs, when it is ready.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import uuid
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvicorn
import uvloop
from pydantic import BaseModel

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from starlette.requests import Request
    from starlette.types import ASGIApp

TABLE = """
CREATE TABLE IF NOT EXISTS floor (
    id uuid PRIMARY KEY, deployment_id uuid NOT NULL, state text NOT NULL DEFAULT 'PENDING', inputs text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
)
"""


class Kickoff(BaseModel):
    inputs: dict[str, Any]


def floor() -> ASGIApp:
    """Starlette with one asyncpg statement a request: what the same stack can do when it does nothing else."""
    from contextlib import asynccontextmanager

    import asyncpg
    from starlette.applications import Starlette
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route

    deployment = uuid.uuid4()

    @asynccontextmanager
    async def connected(app: Starlette) -> AsyncIterator[None]:
        async with asyncpg.create_pool(os.environ["BENCH_DATABASE"], min_size=10, max_size=10) as pool:
            await pool.execute(TABLE)
            app.state.pool = pool
            yield

    async def kickoff(request: Request) -> Response:
        body = await request.json()
        kickoff_id = uuid.uuid4()
        await request.app.state.pool.execute(
            "INSERT INTO floor (id, deployment_id, inputs) VALUES ($1, $2, $3)",
            kickoff_id,
            deployment,
            json.dumps(body["inputs"]),
        )
        return JSONResponse({"kickoff_id": str(kickoff_id)})

    async def status(request: Request) -> Response:
        row = await request.app.state.pool.fetchrow(
            "SELECT id, state, created_at FROM floor WHERE id = $1", uuid.UUID(request.path_params["kickoff_id"])
        )
        return JSONResponse(
            {"kickoff_id": str(row["id"]), "state": row["state"], "created_at": row["created_at"].isoformat()}
        )

    routes = [Route("/kickoff", kickoff, methods=["POST"]), Route("/status/{kickoff_id}", status)]
    return Starlette(routes=routes, lifespan=connected)


def celery() -> ASGIApp:
    """What people write by hand today: FastAPI that hands the kickoff to Celery on Redis.

    At its best: Redis syncs no write to disk, and Celery keeps no results (with
    them it accepts 700 a second, not 1,100).
    """
    from celery import Celery
    from fastapi import FastAPI

    queue = Celery("peer", broker=os.environ["BENCH_REDIS"])

    @queue.task(name="run_crew")
    def run_crew(inputs: dict[str, Any]) -> None: ...

    app = FastAPI()

    @app.post("/kickoff")
    def kickoff(body: Kickoff) -> dict[str, str]:
        return {"kickoff_id": run_crew.delay(body.inputs).id}

    return app


async def windlass(port: int) -> None:
    """The API of Windlass alone: a worker in the same process would measure the crew as well."""
    import gc

    from windlass import config, log
    from windlass.kickoffs.manifest import Manifest, TaskDefinition
    from windlass.store.deployments import DeploymentStore
    from windlass.wiring.http import start_http
    from windlass.wiring.shared import Shared

    log.configure("text", "ERROR")
    settings = config.load().model_copy(update={"port": port})
    tasks = tuple(TaskDefinition(name, uuid.uuid4().hex, name, "Clerk") for name in ("find", "write", "check"))
    schema = {"type": "object", "properties": {"topic": {}, "audience": {}}, "required": ["topic", "audience"]}
    async with AsyncExitStack() as stack:
        shared = await Shared.open(settings, stack, lambda _: None)
        deployment = await DeploymentStore(shared.database).register(
            "bench", digest="0", source={"kind": "crew"}, manifest=Manifest("crew", "bench", schema, tasks)
        )
        tokens = await shared.infrastructure.tokens.show(deployment)
        await start_http(shared, "bench")
        gc.freeze()
        print(json.dumps({"token": tokens.organization.reveal()}), flush=True)
        await asyncio.Event().wait()


class Ready(uvicorn.Server):
    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        print(json.dumps({"token": "none"}), flush=True)


def main() -> None:
    name, port = sys.argv[1], int(sys.argv[2])
    sys.path.insert(0, str(Path(__file__).parents[1]))
    if name == "windlass":
        uvloop.run(windlass(port))
    apps: dict[str, Callable[[], ASGIApp]] = {"floor": floor, "celery": celery}
    config = uvicorn.Config(apps[name](), host="127.0.0.1", port=port, access_log=False, log_level="warning", ws="none")
    Ready(config).run()


if __name__ == "__main__":
    main()
