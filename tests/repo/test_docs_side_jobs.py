"""docs/concepts/side-jobs.md names every side job, and docs/reference/retention.md tells the defaults."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from windlass.access.tokens import Tokens
from windlass.config import Settings
from windlass.kickoffs.retention import Retention
from windlass.lifecycle.accept import Stops
from windlass.lifecycle.background_tasks import side_jobs
from windlass.lifecycle.deletion import Deletions, Retaining, UserDeletion
from windlass.lifecycle.removals import Removals
from windlass.secrets.key_ring import KeyRing, MasterKey
from windlass.store.database import Database
from windlass.store.deployments import DeploymentStore
from windlass.store.kickoffs import KickoffStore
from windlass.store.managing import ManagingStore
from windlass.store.retention import RetentionStore
from windlass.store.side_jobs import SideJobs
from windlass.store.sources import SourceStore
from windlass.store.statistics import StatisticsStore
from windlass.store.tokens import TokenStore
from windlass.store.webhooks import WebhookStore

pytestmark = pytest.mark.unit


DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_has_every_side_job() -> None:
    database = Database("postgresql://nowhere/")
    kickoffs, retention, tokens = KickoffStore(database), RetentionStore(database), TokenStore(database)
    deletion = UserDeletion(
        Deletions(retention),
        Tokens(tokens, KeyRing([MasterKey(bytes(32))]), b""),
        Stops(kickoffs),
        DeploymentStore(database),
        patience=1,
    )
    removals = Removals(retention, Stops(kickoffs), ManagingStore(database), deletion)
    retaining = Retaining(retention, kickoffs, SourceStore(database), Retention())
    jobs = side_jobs(retaining, removals, StatisticsStore(database), WebhookStore(database))
    told = re.findall(
        r"^\| `(\w+)` \| each|^\| `(\w+)` \| (?:every|after)",
        (DOCS / "concepts" / "side-jobs.md").read_text("utf-8"),
        re.MULTILINE,
    )
    assert [one or other for one, other in told] == SideJobs(database.url, jobs).names


def test_the_page_has_how_long_things_are_kept() -> None:
    rows = re.findall(
        r"\| (\d+) \| `WINDLASS_(RETENTION_\w+)` \|", (DOCS / "reference" / "retention.md").read_text("utf-8")
    )
    assert len(rows) == 4
    assert {name.lower(): float(days) for days, name in rows} == {
        name: field.default for name, field in Settings.model_fields.items() if name.startswith("retention_")
    }
