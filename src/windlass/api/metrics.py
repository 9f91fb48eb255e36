"""GET /metrics, in the text format of Prometheus: the metrics of this process, and those of the queues."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.responses import Response
from starlette.routing import Route

from windlass.api.control_api.callers import authorized
from windlass.metrics import REGISTRY
from windlass.rights import Role

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from starlette.requests import Request

    from windlass.access.authentication import TokenAuthenticator
    from windlass.store.overview import OverviewStore, QueueRow, WorkerTotals

QUEUES: dict[str, tuple[str, Callable[[QueueRow], float]]] = {
    "windlass_queue_waiting": ("Kickoffs that can start.", lambda row: row.waiting),
    "windlass_queue_delayed": ("Kickoffs that wait for a time or for a concurrency key.", lambda row: row.delayed),
    "windlass_queue_running": ("Kickoffs that run.", lambda row: row.running),
    "windlass_queue_oldest_seconds": ("Age of the oldest kickoff that can start.", lambda row: row.oldest),
}
"""Metric -> its description, and its value for one deployment."""


@dataclass(frozen=True, slots=True)
class Metrics:
    """`is_open` is whether a client needs no token. Without one it gets no names of deployments, only totals."""

    access: TokenAuthenticator
    overview: OverviewStore
    is_open: bool

    def routes(self) -> list[Route]:
        return [Route("/metrics", self.metrics, methods=["GET"])]

    async def metrics(self, request: Request) -> Response:
        named, sees = "authorization" in request.headers or not self.is_open, None
        if named:
            sees = (await authorized(request, self.access, Role.VIEWER)).actor.sees
        queues, workers = await self.overview.queues(sees=sees), await self.overview.worker_totals()
        registry = CollectorRegistry()
        registry.register(_Families([*queue_families(queues, named=named), *worker_families(workers)]))
        text = generate_latest(REGISTRY) + generate_latest(registry)
        return Response(text, media_type=CONTENT_TYPE_LATEST)


class _Families(Collector):
    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def queue_families(rows: Sequence[QueueRow], *, named: bool) -> list[Metric]:
    """Returns the metrics of the queues: with `named` of each deployment, else the totals. The oldest is a maximum."""
    found: list[Metric] = []
    for name, (description, value) in QUEUES.items():
        family = GaugeMetricFamily(name, description, labels=["deployment"] if named else None)
        if named:
            for row in rows:
                family.add_metric([row.slug], value(row))
        else:
            total = max if name.endswith("_seconds") else sum
            family.add_metric([], total([value(row) for row in rows] or [0]))
        found.append(family)
    return found


def worker_families(found: WorkerTotals) -> list[Metric]:
    return [
        GaugeMetricFamily("windlass_workers", "Workers that have reported in time.", value=found.workers),
        GaugeMetricFamily("windlass_slots", "Slots of these workers.", value=found.slots),
    ]
