"""Counts what this process does, for /metrics. docs/reference/metrics.md explains each metric, and a test compares
both.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

REGISTRY = CollectorRegistry()
"""The metrics of this process. The libraries' own registry is not used: others could add metrics to it."""
SECONDS_OF_WAITS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000, 3600)
SECONDS_OF_STATEMENTS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10)

ProcessCollector(registry=REGISTRY)
REQUESTS = Counter("windlass_http_requests", "HTTP requests that were answered.", ["api", "status"], registry=REGISTRY)
ACCEPTED = Counter("windlass_kickoffs_accepted", "Kickoffs that were accepted.", registry=REGISTRY)
CLAIMED = Counter("windlass_kickoffs_claimed", "Kickoffs that the worker has claimed, each attempt.", registry=REGISTRY)
ENDED = Counter("windlass_kickoffs_ended", "Kickoffs that runs of the worker have ended.", ["state"], registry=REGISTRY)
WAITED = Histogram(
    "windlass_kickoff_wait_seconds",
    "Time from the acceptance of a kickoff to its first claim.",
    buckets=SECONDS_OF_WAITS,
    registry=REGISTRY,
)
RUNNING = Gauge("windlass_runs", "Runs of the worker of this process.", registry=REGISTRY)
ZYGOTES = Gauge("windlass_zygotes", "Zygotes of this process.", registry=REGISTRY)
SECRET_RESOLUTIONS = Histogram(
    "windlass_secret_resolution_seconds",
    "Time in which the variables of a kickoff or of a build were read from secret managers, failed reads included.",
    buckets=SECONDS_OF_WAITS,
    registry=REGISTRY,
)
SECRET_FAILURES = Counter(
    "windlass_secret_failures",
    "Variables that could not be read from their secret manager.",
    ["provider", "cause"],
    registry=REGISTRY,
)
WEBHOOKS = Counter("windlass_webhooks", "Requests of webhooks that were sent.", ["outcome"], registry=REGISTRY)
DATABASE = Histogram(
    "windlass_database_seconds",
    "Time for which a connection to the database was used, with the wait for it.",
    buckets=SECONDS_OF_STATEMENTS,
    registry=REGISTRY,
)
