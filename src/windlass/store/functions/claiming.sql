-- See docs/decisions/queue.md#a-claim-is-one-function-that-takes-a-lock
-- See docs/decisions/queue.md#the-plan-of-a-claim-does-not-depend-on-statistics
-- See docs/decisions/queue.md#a-claim-returns-small-kickoffs-whole
-- See docs/decisions/queue.md#ready-is-a-filter-and-not-the-truth

-- The claim: a worker starts kickoffs for its free slots. All plans except index scans are disabled, sorting too. The planner's statistics
-- are outdated just after a backlog has been accepted. It would then choose a plan that reads the whole backlog. So each ORDER BY determines
-- the index that is read. A disabled plan that has no alternative adds 10,000,000,000 to the estimated cost, so PostgreSQL would compile
-- each statement first (JIT), which takes seconds. So every function that disables plans disables JIT too.

-- The first two conditions are those of the index kickoffs_ready.
CREATE OR REPLACE FUNCTION is_claimable(kickoff kickoffs) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT kickoff.state = 'PENDING' AND kickoff.ready
           AND (kickoff.concurrency_key IS NULL OR NOT key_is_held(kickoff.deployment_id, kickoff.concurrency_key, begun => true));
$$;

-- A claim holds a lock, so it sees the claims of all other workers. Concurrency limits and keys therefore apply across all workers. The
-- function is one statement for its caller, and finishes without further input. So a worker that is stopped (SIGSTOP) in the middle can't
-- keep the lock.
-- The time of a start and the end of a lease count from the update, not from the begin of the transaction: the claim may have waited for the
-- lock, and for the end of the last kickoff of a key.
-- Arguments about the worker: `only_slugs` are the deployments whose kickoffs it runs, NULL for all. `ended` are its kickoffs that have no
-- process any more and are not settled yet: they count in the concurrency of their deployments, but not in their shares. `recent` are the
-- deployments of its last starts, the latest one last. Between deployments with equal shares, the one that started least recently is next.
-- `excluded_slugs` are the deployments whose kickoffs it does not run.
DROP FUNCTION IF EXISTS claim_kickoffs(uuid, text, integer, interval, text[], uuid[], uuid[]);
CREATE OR REPLACE FUNCTION claim_kickoffs(
    by_worker uuid, on_host text, free_slots integer, lease interval, only_slugs text[], ended uuid[], recent uuid[],
    excluded_slugs text[] DEFAULT '{}'
) RETURNS SETOF uuid
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('claim', 0));
    RETURN QUERY
    WITH RECURSIVE waiting (deployment_id) AS (  -- one look-up for each deployment with ready kickoffs, however many there are without
        (SELECT deployment_id FROM kickoffs WHERE state = 'PENDING' AND ready ORDER BY deployment_id LIMIT 1)
         UNION ALL
        SELECT next.deployment_id
          FROM waiting
         CROSS JOIN LATERAL (
               SELECT kickoffs.deployment_id
                 FROM kickoffs
                WHERE kickoffs.deployment_id > waiting.deployment_id AND state = 'PENDING' AND ready
                ORDER BY kickoffs.deployment_id
                LIMIT 1
               ) AS next
    ), started AS MATERIALIZED (
        SELECT deployment_id, id <> ALL (ended) AS active FROM kickoffs WHERE state = 'STARTED' ORDER BY lease_until
    ), running AS MATERIALIZED (
        SELECT deployment_id, count(*) AS runs, count(*) FILTER (WHERE active) AS active FROM started GROUP BY deployment_id
    ), free AS (
        SELECT waiting.deployment_id AS id, weight, coalesce(active, 0) AS active,
               array_position(recent, waiting.deployment_id) AS recency,
               least(free_slots, coalesce(concurrency - coalesce(runs, 0), free_slots)) AS room
          FROM waiting
         CROSS JOIN LATERAL (  -- OFFSET 0 forces a look-up by id
               SELECT weight, concurrency, paused_at, slug FROM deployments WHERE id = waiting.deployment_id OFFSET 0
               ) AS deployment
          LEFT JOIN running ON running.deployment_id = waiting.deployment_id
         WHERE paused_at IS NULL AND (only_slugs IS NULL OR slug = ANY (only_slugs)) AND slug <> ALL (excluded_slugs)
    ), tried AS (  -- one per slot is enough
        SELECT free.*
          FROM free
         CROSS JOIN LATERAL (
               SELECT id FROM kickoffs WHERE deployment_id = free.id AND is_claimable(kickoffs) ORDER BY priority DESC, id LIMIT 1
               ) AS head
         WHERE free.room > 0
         ORDER BY (active + 1) / weight, recency NULLS FIRST, head.id
         LIMIT free_slots
    ), candidates AS (  -- SKIP LOCKED: omits kickoffs that are being stopped just now
        SELECT first.*, tried.weight, tried.active, tried.recency,
               row_number() OVER (PARTITION BY deployment_id, coalesce(concurrency_key, first.id::text)
                                      ORDER BY priority DESC, first.id) AS turn
          FROM tried
         CROSS JOIN LATERAL (
               SELECT id, deployment_id, priority, concurrency_key
                 FROM kickoffs
                WHERE deployment_id = tried.id AND is_claimable(kickoffs)
                ORDER BY priority DESC, id
                LIMIT tried.room
                  FOR UPDATE SKIP LOCKED
               ) AS first
    ), ranked AS (
        SELECT id, weight, active, recency, row_number() OVER (PARTITION BY deployment_id ORDER BY priority DESC, id) AS rank
          FROM candidates
         WHERE turn = 1
    ), chosen AS MATERIALIZED (
        SELECT id FROM ranked ORDER BY (active + rank) / weight, recency NULLS FIRST, id LIMIT free_slots
    ), claimed AS (  -- an array, not a join: a join planned for a small table reads all kickoffs to find these
        UPDATE kickoffs
           SET state = 'STARTED', attempt = attempt + 1, worker_id = by_worker, lease_until = clock_timestamp() + lease,
               started_at = coalesce(started_at, clock_timestamp()), waiting_for = NULL, process_started = false,
               paused_for = paused_for + coalesce(clock_timestamp() - paused_at, interval '0'), paused_at = NULL
         WHERE id = ANY (ARRAY(SELECT id FROM chosen))
        RETURNING kickoffs.id, kickoffs.version_id, kickoffs.attempt, kickoffs.started_at
    ), tried_again AS (
        INSERT INTO attempts (kickoff_id, attempt, started_at, worker_id, host, restored)
        SELECT claimed.id, claimed.attempt, CASE claimed.attempt WHEN 1 THEN claimed.started_at ELSE clock_timestamp() END, by_worker, on_host,
               CASE WHEN claimed.attempt > 1 THEN (SELECT count(*) FROM journal WHERE kickoff_id = claimed.id) ELSE 0 END
          FROM claimed
    ), recorded AS (
        INSERT INTO task_records (kickoff_id, position, task_id, key, name, agent, state)
        SELECT claimed.id, position, task_id, key, name, agent, 'pending_run'
          FROM claimed
         CROSS JOIN LATERAL registered_tasks(claimed.version_id)
            ON CONFLICT (kickoff_id, position) DO UPDATE  -- written by an earlier attempt
           SET task_id = excluded.task_id, key = excluded.key, name = excluded.name, agent = excluded.agent, registered = true
         WHERE task_records.state = 'pending_run'
    ), leftover AS (
        DELETE FROM task_records
         USING claimed
          JOIN versions ON versions.id = claimed.version_id
         WHERE claimed.attempt > 1 AND kickoff_id = claimed.id AND position >= json_array_length(versions.manifest -> 'tasks')
           AND task_records.state = 'pending_run'
    )
    SELECT claimed.id FROM claimed;
END
$$;

-- Returns what a worker needs to run the kickoffs that it has claimed. Each table is read by id. A range of one id, in the order of the ids,
-- can only be read from the primary key: a session that planned while the table was small would else keep a plan that reads all kickoffs.
CREATE OR REPLACE FUNCTION read_claimed(ids uuid[], by_worker uuid) RETURNS TABLE (id uuid, content json) LANGUAGE sql STABLE AS $$
    SELECT claimed.id, json_build_object(
               'id', claimed.id, 'attempt', attempt, 'inputs', inputs, 'limits', limits, 'isolated', isolated, 'retries', retries,
               'concurrency_key', concurrency_key, 'usage', token_usage, 'model_calls', model_calls,
               'stop_requested', stop_requested_at IS NOT NULL,
               'ran_for', CASE attempt WHEN 1 THEN 0 ELSE extract(epoch FROM clock_timestamp() - started_at - paused_for)::float8 END,
               'asked', asked,
               'deployment_id', deployment_id, 'slug', deployment.slug, 'settings', deployment.settings,
               'digest', version.digest, 'source', version.source, 'manifest', version.manifest,
               'variables', (
                   SELECT coalesce(json_agg(json_build_object(
                              'name', name, 'value', value, 'secret', secret, 'provider', provider,
                              'credential_id', credential_id, 'secret_name', secret_name)), '[]')
                     FROM variables
                    WHERE variables.deployment_id = claimed.deployment_id))
      FROM unnest(ids) AS one (id)
     CROSS JOIN LATERAL (SELECT * FROM kickoffs WHERE kickoffs.id BETWEEN one.id AND one.id ORDER BY kickoffs.id LIMIT 1) AS claimed
     CROSS JOIN LATERAL (SELECT digest, source, manifest FROM versions WHERE versions.id = claimed.version_id OFFSET 0) AS version
     CROSS JOIN LATERAL (SELECT slug, settings FROM deployments WHERE deployments.id = claimed.deployment_id OFFSET 0) AS deployment
     WHERE worker_id = by_worker AND state = 'STARTED';
$$;

-- Claims kickoffs, and returns them with what `read_claimed` returns. `content` is NULL for those whose content is large, which the worker
-- reads afterwards. The answer has at most 32 KB and fits into the buffers of a connection. PostgreSQL can therefore commit, and release
-- the lock of the claim, although the worker does not read. The stored sizes are compared first: they are known without reading the values,
-- and inputs that are compressed may be a hundred times as large.
DROP FUNCTION IF EXISTS claim_and_read(uuid, text, integer, interval, text[], uuid[], uuid[]);
CREATE OR REPLACE FUNCTION claim_and_read(
    by_worker uuid, on_host text, free_slots integer, lease interval, only_slugs text[], ended uuid[], recent uuid[],
    excluded_slugs text[] DEFAULT '{}'
) RETURNS TABLE (id uuid, content json)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
DECLARE
    claimed uuid[] := ARRAY(SELECT claim_kickoffs(by_worker, on_host, free_slots, lease, only_slugs, ended, recent, excluded_slugs));
    small uuid[];
BEGIN
    IF cardinality(claimed) = 0 THEN
        RETURN;
    END IF;
    small := ARRAY(
        SELECT one.id
          FROM unnest(claimed) AS one (id)
         CROSS JOIN LATERAL (SELECT * FROM kickoffs WHERE kickoffs.id BETWEEN one.id AND one.id ORDER BY kickoffs.id LIMIT 1) AS kickoff
         CROSS JOIN LATERAL (SELECT manifest FROM versions WHERE versions.id = kickoff.version_id OFFSET 0) AS version
         WHERE pg_column_compression(inputs) IS NULL
           AND pg_column_size(inputs) + pg_column_size(manifest) + coalesce((
               SELECT sum(pg_column_size(value)) FROM variables WHERE variables.deployment_id = kickoff.deployment_id), 0) < 8192);
    RETURN QUERY
    SELECT one.id, CASE WHEN sum(octet_length(found.content::text)) OVER (ORDER BY one.id) <= 32768 THEN found.content END
      FROM unnest(claimed) AS one (id)
      LEFT JOIN read_claimed(small, by_worker) AS found ON found.id = one.id;
END
$$;
