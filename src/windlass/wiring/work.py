"""Starts the services that do work: the runner, the worker, builds and side jobs."""

# See docs/decisions/deployments.md#builds-have-a-side-job-worker-of-their-own

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from windlass.access.callbacks import Callbacks
from windlass.administration.user_removal import user_deletion
from windlass.aio import serving
from windlass.deployments.building import Building
from windlass.deployments.deployed_code import DeployedCode, Removal
from windlass.lifecycle.accept import Stops
from windlass.lifecycle.background_tasks import BackgroundTasks, SideJobWorker, side_jobs
from windlass.lifecycle.deletion import Retaining
from windlass.lifecycle.removals import Removals
from windlass.lifecycle.worker import Worker
from windlass.lifecycle.worker_config import WorkerConfig
from windlass.projects import ServedCode, TrustedProjects
from windlass.runner.descriptors import make_room
from windlass.store.builds import JOB, BuildStore
from windlass.store.ending import Endings
from windlass.store.managing import ManagingStore
from windlass.store.retention import RetentionStore
from windlass.store.side_jobs import SideJob, SideJobs
from windlass.store.sources import SourceStore
from windlass.store.statistics import StatisticsStore
from windlass.store.webhooks import JOB as WEBHOOKS
from windlass.store.webhooks import WebhookStore
from windlass.webhooks.delivering import ENDPOINTS_AT_ONCE, Delivering, status_url
from windlass.wiring.crews import interpreters_of_command, runner_of

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from windlass.deployments.environment import CrewEnvironments
    from windlass.lifecycle.worker_config import Observer
    from windlass.projects import Interpreters
    from windlass.runner import Runner
    from windlass.wiring.shared import Shared

BUILDS_AT_ONCE = 3
"""Builds have side-job workers of their own, so that no other side job waits for them."""


async def start_runner(shared: Shared) -> Runner:
    make_room()
    shared.runner = runner = await asyncio.to_thread(runner_of, shared.settings, shared.notify)
    return await shared.stack.enter_async_context(serving(runner))


async def start_side_jobs(shared: Shared) -> None:
    database = shared.database
    settings = shared.settings
    retaining = Retaining(
        RetentionStore(database),
        shared.kickoffs,
        SourceStore(database),
        settings.retention,
        audit=settings.audit_retention,
    )
    removals = Removals(
        RetentionStore(database),
        Stops(Endings(database)),
        ManagingStore(database),
        user_deletion(shared.settings, database, shared.infrastructure.tokens),
    )
    webhooks = WebhookStore(database)
    jobs = SideJobs(database.url, side_jobs(retaining, removals, StatisticsStore(database), webhooks))
    await shared.stack.enter_async_context(serving(SideJobWorker(jobs)))
    delivering = Delivering(
        webhooks,
        shared.endpoints,
        shared.infrastructure.key_ring,
        shared.sender,
        partial(status_url, shared.settings.public_url),
        partial(Callbacks(shared.infrastructure.tokens).url, shared.settings.public_url),
    )
    deliveries = SideJobs(database.url, [SideJob(WEBHOOKS, delivering.run)], at_once=ENDPOINTS_AT_ONCE, look_every=1.0)
    await shared.stack.enter_async_context(serving(SideJobWorker(deliveries)))


async def start_builds(shared: Shared, runner: Runner, crew_environments: CrewEnvironments) -> None:
    """Does builds of deployments in this process, BUILDS_AT_ONCE at the same time, and removes what they left."""
    database = shared.database
    store, checkouts, environments = BuildStore(database), shared.checkouts, shared.environments
    building = Building(
        store,
        sources=shared.sources,
        checkouts=checkouts,
        environments=environments,
        reader=shared.reader,
        runner=runner,
        crew_environments=crew_environments,
        resolver=shared.resolver,
        crew_users=shared.crew_users,
    )
    jobs = SideJobs(database.url, [SideJob(JOB, building.run)], at_once=BUILDS_AT_ONCE, look_every=1.0)
    await shared.stack.enter_async_context(serving(SideJobWorker(jobs)))
    removal = Removal(store, checkouts, environments)
    await shared.stack.enter_async_context(serving(BackgroundTasks(removal.remove_unused)))


async def start_worker(
    shared: Shared,
    runner: Runner,
    environments: CrewEnvironments,
    *,
    observers: Sequence[Observer] = (),
    given: Collection[Path] = (),
    interpreters: Interpreters | None = None,
    code: ServedCode | None = None,
    deployments: Sequence[str] | None = None,
    excluded: Sequence[str] = (),
) -> Worker:
    """Starts a worker. `given` are the projects that the server was started with.

    `deployments` are the slugs of the deployments whose kickoffs it runs, None for all but those of `excluded`.
    """
    settings, store, infrastructure = shared.settings, shared.kickoffs, shared.infrastructure
    if infrastructure.exclusive:
        await store.end_all_leases()
    config = WorkerConfig(
        settings.slots,
        settings.lease,
        settings.renewal,
        settings.max_losses,
        settings.limits,
        settings.files,
        TrustedProjects.of(settings.project_owners, given),
        interpreters or interpreters_of_command(None),
        code or ServedCode(),
        deployments=None if deployments is None else tuple(deployments),
        excluded=tuple(excluded),
        deployed=DeployedCode(shared.checkouts, shared.environments, shared.resolver, shared.crew_users),
        fault=shared.folder_check,
        reader=shared.reader,
    )
    listener, key_ring = infrastructure.listener, infrastructure.key_ring
    worker = Worker(store, listener, runner, environments, key_ring, config, observers=observers)
    shared.worker = await shared.stack.enter_async_context(serving(worker))
    return worker
