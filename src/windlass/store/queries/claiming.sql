-- name: claim
-- Two statements in one message, which is one transaction: the server needs nothing more from us to come to its end, so a worker that is
-- stopped (SIGSTOP) in the middle can't keep the lock. Nor can one that does not read: the answer is small.
-- Under the lock, whoever claims counts what all others have claimed: caps and keys hold over all workers. Without scans of whole tables,
-- whatever the statistics say: they are old just when a backlog has come in.
SELECT pg_advisory_xact_lock(hashtextextended('claim', 0)), set_config('enable_seqscan', 'off', true);
WITH running AS (
    SELECT deployment_id, count(*) AS runs FROM kickoffs WHERE state = 'STARTED' GROUP BY deployment_id
), free AS (
    SELECT deployments.id, weight, coalesce(runs, 0) AS runs,
           least(%(slots)s, coalesce(concurrency - coalesce(runs, 0), %(slots)s)) AS room
      FROM deployments
      LEFT JOIN running ON running.deployment_id = deployments.id
     WHERE paused_at IS NULL
), tried AS (  -- at most one a slot can matter
    SELECT free.*
      FROM free
     CROSS JOIN LATERAL (
           SELECT waiting.id
             FROM kickoffs AS waiting
            WHERE waiting.deployment_id = free.id AND waiting.state = 'PENDING' AND waiting.ready
              AND (waiting.concurrency_key IS NULL OR NOT EXISTS (
                  SELECT FROM kickoffs AS held
                   WHERE held.deployment_id = waiting.deployment_id AND held.concurrency_key = waiting.concurrency_key
                     AND (held.state = 'STARTED' OR held.state = 'PENDING_HUMAN_INPUT')))
            ORDER BY waiting.priority DESC, waiting.id
            LIMIT 1
           ) AS head
     WHERE free.room > 0
     ORDER BY (runs + 1) / weight, head.id
     LIMIT %(slots)s
), candidates AS (  -- SKIP LOCKED: what is being stopped just now is passed over
    SELECT first.*, tried.weight, tried.runs,
           row_number() OVER (PARTITION BY deployment_id, coalesce(concurrency_key, first.id::text) ORDER BY priority DESC, first.id) AS turn
      FROM tried
     CROSS JOIN LATERAL (
           SELECT waiting.id, waiting.deployment_id, waiting.priority, waiting.concurrency_key
             FROM kickoffs AS waiting
            WHERE waiting.deployment_id = tried.id AND waiting.state = 'PENDING' AND waiting.ready
              AND (waiting.concurrency_key IS NULL OR NOT EXISTS (
                  SELECT FROM kickoffs AS held
                   WHERE held.deployment_id = waiting.deployment_id AND held.concurrency_key = waiting.concurrency_key
                     AND (held.state = 'STARTED' OR held.state = 'PENDING_HUMAN_INPUT')))
            ORDER BY waiting.priority DESC, waiting.id
            LIMIT tried.room
              FOR UPDATE SKIP LOCKED
           ) AS first
), ranked AS (
    SELECT id, weight, runs, row_number() OVER (PARTITION BY deployment_id ORDER BY priority DESC, id) AS rank
      FROM candidates
     WHERE turn = 1
), chosen AS (
    SELECT id FROM ranked ORDER BY (runs + rank) / weight, id LIMIT %(slots)s
), claimed AS (
    UPDATE kickoffs
       SET state = 'STARTED', attempt = attempt + 1, worker_id = %(worker)s, lease_until = now() + %(lease)s,
           started_at = coalesce(started_at, now()), waiting_for = NULL
      FROM chosen
     WHERE kickoffs.id = chosen.id
    RETURNING kickoffs.id, kickoffs.version_id, kickoffs.attempt
), recorded AS (
    INSERT INTO task_records (kickoff_id, position, task_id, key, name, agent, state)
    SELECT claimed.id, position, task_id, key, name, agent, 'pending_run'
      FROM claimed
      JOIN registered_tasks USING (version_id)
        ON CONFLICT (kickoff_id, position) DO UPDATE  -- of a former attempt
       SET task_id = excluded.task_id, key = excluded.key, name = excluded.name, agent = excluded.agent, state = excluded.state,
           registered = true, output = NULL, execution_time = NULL, started_at = NULL, finished_at = NULL
), leftover AS (
    DELETE FROM task_records
     USING claimed
      JOIN versions ON versions.id = claimed.version_id
     WHERE claimed.attempt > 1 AND kickoff_id = claimed.id AND position >= json_array_length(versions.manifest -> 'tasks')
)
SELECT id FROM claimed

-- name: claimed
SELECT kickoffs.id, attempt, inputs, limits, losses, concurrency_key, stop_requested_at IS NOT NULL AS stop_requested,
       CASE attempt WHEN 1 THEN 0 ELSE extract(epoch FROM now() - started_at)::float8 END AS ran_for,
       deployments.slug, versions.source, versions.manifest
  FROM kickoffs
  JOIN versions ON versions.id = kickoffs.version_id
  JOIN deployments ON deployments.id = kickoffs.deployment_id
 WHERE kickoffs.id = ANY (%(ids)s) AND worker_id = %(worker)s AND state = 'STARTED'
 ORDER BY kickoffs.id

-- name: renew
-- Only what is still this worker's: a row that is missing from the answer was taken from it.  What it no longer runs is not named, and
-- its lease ends.
UPDATE kickoffs
   SET lease_until = now() + %(lease)s
 WHERE id = ANY (%(kickoffs)s) AND worker_id = %(worker)s AND state = 'STARTED'
RETURNING id, attempt, stop_requested_at IS NOT NULL AS stop_requested

-- name: promote_due
-- One with a key waits for its turn from now on.
WITH due AS (
    SELECT first.id
      FROM deployments
     CROSS JOIN LATERAL (
           SELECT id
             FROM kickoffs
            WHERE deployment_id = deployments.id AND state = 'PENDING' AND NOT ready AND run_at <= now()
            ORDER BY run_at
            LIMIT %(limit)s
              FOR UPDATE SKIP LOCKED
           ) AS first
), promoted AS (
    UPDATE kickoffs SET ready = concurrency_key IS NULL, run_at = NULL FROM due WHERE kickoffs.id = due.id
    RETURNING kickoffs.id
)
SELECT count(*) AS promoted, count(pg_notify('windlass_kickoffs', '')) FROM promoted

-- name: promote_keys
-- Ends free their keys themselves. This is for losses, and for an end that came while the next one was being accepted. It goes from key to
-- key, a page at a time, however many kickoffs wait for each; `last` says where the next page begins.
WITH RECURSIVE keys AS (
    (SELECT deployment_id, concurrency_key
       FROM kickoffs
      WHERE concurrency_key IS NOT NULL AND state = 'PENDING' AND NOT ready AND run_at IS NULL
        AND (deployment_id, concurrency_key) > (%(deployment)s, %(key)s)
      ORDER BY deployment_id, concurrency_key
      LIMIT 1)
     UNION ALL
    SELECT next.*
      FROM keys
     CROSS JOIN LATERAL (
           SELECT kickoffs.deployment_id, kickoffs.concurrency_key
             FROM kickoffs
            WHERE kickoffs.concurrency_key IS NOT NULL AND state = 'PENDING' AND NOT ready AND run_at IS NULL
              AND (kickoffs.deployment_id, kickoffs.concurrency_key) > (keys.deployment_id, keys.concurrency_key)
            ORDER BY kickoffs.deployment_id, kickoffs.concurrency_key
            LIMIT 1
           ) AS next
), page AS (
    SELECT * FROM keys LIMIT %(limit)s
), first AS (
    SELECT waiting.id
      FROM page
     CROSS JOIN LATERAL (
           SELECT id
             FROM kickoffs
            WHERE kickoffs.deployment_id = page.deployment_id AND kickoffs.concurrency_key = page.concurrency_key
              AND state = 'PENDING' AND NOT ready AND run_at IS NULL
            ORDER BY priority DESC, id
            LIMIT 1
           ) AS waiting
     WHERE NOT EXISTS (
           SELECT FROM kickoffs AS held
            WHERE held.deployment_id = page.deployment_id AND held.concurrency_key = page.concurrency_key
              AND (held.state = 'STARTED' OR held.state = 'PENDING_HUMAN_INPUT' OR (held.state = 'PENDING' AND held.ready)))
), locked AS (
    SELECT kickoffs.id
      FROM kickoffs
      JOIN first USING (id)
     WHERE state = 'PENDING' AND NOT ready
       FOR UPDATE OF kickoffs SKIP LOCKED
), promoted AS (
    UPDATE kickoffs SET ready = true FROM locked WHERE kickoffs.id = locked.id
    RETURNING pg_notify('windlass_kickoffs', '')
)
SELECT (SELECT count(*) FROM promoted) AS promoted,
       (SELECT json_build_array(deployment_id, concurrency_key) FROM page OFFSET %(limit)s - 1) AS last
