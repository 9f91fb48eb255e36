"""API processes behind nginx that are restarted one after the other, while clients send requests without a pause."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from faults.cluster import FAST, Cluster, free_port
from faults.load import Load
from projects_for_tests.driver import until
from projects_for_tests.places import folder_for_all
from store.stock_postgres import others

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

NGINX = shutil.which("nginx", path="/usr/sbin:/usr/bin")
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "several-processes.md"
pytestmark = pytest.mark.skipif(NGINX is None, reason="nginx is not installed: `apt-get install nginx` brings it.")

WHOLE = """
daemon off;
worker_processes 1;
error_log {folder}/error.log;
pid {folder}/pid;
events {{ worker_connections 512; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    upstream windlass {{
        {servers}
        keepalive 32;
    }}
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://windlass;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Host $host;
            proxy_buffering off;
        }}
    }}
}}
"""


def documented_servers(ports: Sequence[int]) -> str:
    """The lines of the page, with these ports."""
    found = re.findall(r"^ +server 10\.[0-9.]+:8000 (.+)$", PAGE.read_text("utf-8"), re.MULTILINE)
    return " ".join(f"server 127.0.0.1:{port} {options}" for port, options in zip(ports, found, strict=True))


@contextmanager
def nginx(ports: Sequence[int]) -> Iterator[tuple[str, Path]]:
    """Its address, and its log of errors."""
    port = free_port()
    with folder_for_all() as folder:
        text = WHOLE.format(folder=folder, port=port, servers=documented_servers(ports))
        (folder / "nginx.conf").write_text(text)
        account = others(folder)
        order = [str(NGINX), "-c", f"{folder}/nginx.conf", "-e", f"{folder}/error.log"]
        process = subprocess.Popen(order, stderr=subprocess.DEVNULL, **account)  # type: ignore[call-overload]
        try:
            until(lambda: (folder / "pid").exists() and (folder / "pid").read_text())
            yield f"http://127.0.0.1:{port}", folder / "error.log"
        finally:
            process.terminate()
            process.wait(30)


async def test_no_request_fails_while_servers_are_restarted_in_turn(open_folder: Path) -> None:
    settings = {**FAST, "WINDLASS_DRAIN_GRACE": "20"}
    async with Cluster(open_folder, kinds=["function"], settings=settings, workers=1, forked=True) as cluster:
        with nginx([cluster.ports[api.name] for api in cluster.apis]) as (address, errors):
            held = await cluster.kickoff("function", hold=1)
            load = Load([address], "/crews/witnessed-function", cluster.tokens["function"], held=held.id)
            async with load.applied():
                for _ in range(2):
                    for api in cluster.apis:
                        await load.go_on(100)
                        assert await asyncio.to_thread(api.stop) == 0, api.log
                        await load.go_on(50)
                        await cluster.start(api)
                cluster.witness.release(held.run)
            assert load.failures == [], errors.read_text()
            assert await load.states() == {"SUCCESS": len(load.accepted)}
