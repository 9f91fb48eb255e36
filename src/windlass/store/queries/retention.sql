-- name: deployments
SELECT deployments.id, slug, versions.source -> 'options' -> 'retention' AS of_project, settings -> 'retention' AS own
  FROM deployments
  LEFT JOIN versions ON versions.id = deployments.current_version
 WHERE deployments.id > %(after)s
 ORDER BY deployments.id
 LIMIT %(limit)s

-- name: ended
-- The first kickoffs that ended after `after` and longer than `age` ago. All that ended at the same time as the last one are included, so
-- that the next turn can continue after that time.
WITH first AS (
    SELECT finished_at
      FROM kickoffs
     WHERE deployment_id = %(deployment)s AND finished_at > %(after)s AND finished_at < now() - %(age)s
     ORDER BY finished_at
     LIMIT %(limit)s
)
SELECT id, finished_at
  FROM kickoffs
 WHERE deployment_id = %(deployment)s AND finished_at > %(after)s AND finished_at <= (SELECT max(finished_at) FROM first)
   AND state IN ('SUCCESS', 'FAILED', 'TIMED_OUT', 'CANCELLED')
 ORDER BY finished_at

-- name: progress
SELECT finished_at FROM retention_progress WHERE deployment_id = %(deployment)s AND what = %(what)s

-- name: set_progress
INSERT INTO retention_progress (deployment_id, what, finished_at)
VALUES (%(deployment)s, %(what)s, %(finished_at)s)
    ON CONFLICT (deployment_id, what) DO UPDATE SET finished_at = excluded.finished_at

-- name: drop_rows
DELETE FROM {table} WHERE ctid = ANY (ARRAY (SELECT ctid FROM {table} WHERE kickoff_id = ANY (%(kickoffs)s) LIMIT %(limit)s))

-- name: drop_audit
-- Ids of entries are in the order of time.
DELETE FROM audit_log WHERE id = ANY (ARRAY (SELECT id FROM audit_log WHERE id < %(before)s ORDER BY id LIMIT %(limit)s))

-- name: drop_kickoffs
-- Removes ended kickoffs together with their task records, attempts and questions, so that no reader sees a kickoff without its tasks. Events,
-- journals and files, which can be many rows, are removed before.
WITH gone AS (
    DELETE FROM kickoffs
     WHERE id = ANY (%(kickoffs)s) AND state IN ('SUCCESS', 'FAILED', 'TIMED_OUT', 'CANCELLED')
    RETURNING id
), tasks AS (
    DELETE FROM task_records WHERE kickoff_id IN (SELECT id FROM gone)
), tries AS (
    DELETE FROM attempts WHERE kickoff_id IN (SELECT id FROM gone)
), hooks AS (
    DELETE FROM webhooks WHERE kickoff_id IN (SELECT id FROM gone)
), asked AS (
    DELETE FROM questions WHERE kickoff_id IN (SELECT id FROM gone)
)
SELECT id FROM gone

-- name: delete_kickoffs
-- As drop_kickoffs, for a requested deletion. Also removes the idempotency keys, which are kept for 24 hours. Scans the keys of the users
-- and deployments that started the kickoffs once, independent of the number of kickoffs.
WITH gone AS (
    DELETE FROM kickoffs
     WHERE id = ANY (%(kickoffs)s) AND state IN ('SUCCESS', 'FAILED', 'TIMED_OUT', 'CANCELLED')
    RETURNING id, deployment_id, coalesce(user_id, deployment_id) AS principal, state, started_by
), tasks AS (
    DELETE FROM task_records WHERE kickoff_id IN (SELECT id FROM gone)
), tries AS (
    DELETE FROM attempts WHERE kickoff_id IN (SELECT id FROM gone)
), hooks AS (
    DELETE FROM webhooks WHERE kickoff_id IN (SELECT id FROM gone)
), asked AS (
    DELETE FROM questions WHERE kickoff_id IN (SELECT id FROM gone)
), keys AS (
    DELETE FROM idempotency_keys
     WHERE (deployment_id, principal) IN (SELECT DISTINCT deployment_id, principal FROM gone) AND kickoff_id IN (SELECT id FROM gone)
)
SELECT id, state, started_by, (SELECT slug FROM deployments WHERE deployments.id = gone.deployment_id) AS deployment FROM gone

-- name: kickoffs_of
-- Reads the next kickoffs of all users, and returns the ended ones of one user. There is no index by user for this.
WITH next AS MATERIALIZED (
    SELECT id, user_id, state FROM kickoffs WHERE id > %(after)s ORDER BY id LIMIT %(limit)s
)
SELECT (array_agg(id ORDER BY id DESC))[1] AS last,
       array_agg(id) FILTER (WHERE user_id = %(user)s AND state IN ('SUCCESS', 'FAILED', 'TIMED_OUT', 'CANCELLED')) AS ended
  FROM next

-- name: open_kickoffs
SELECT (SELECT count(*) FROM kickoffs WHERE state = 'PENDING' AND user_id = %(user)s)
     + (SELECT count(*) FROM kickoffs WHERE state = 'STARTED' AND user_id = %(user)s)
     + (SELECT count(*) FROM kickoffs WHERE state = 'PENDING_HUMAN_INPUT' AND user_id = %(user)s) AS count

-- name: delete_user
WITH keys AS (
    DELETE FROM idempotency_keys WHERE deployment_id = ANY (ARRAY (SELECT id FROM deployments)) AND principal = %(user)s
), tokens_of_user AS (
    DELETE FROM tokens WHERE user_id = %(user)s
)
SELECT pg_notify('windlass_tokens', '')

-- name: delete_user_row
DELETE FROM users WHERE id = %(user)s

-- name: seen
-- Returns the next kickoffs of which a table has rows, and which of them no longer exist. Each is found with one index lookup. No row of a
-- kickoff is written before the kickoff itself.
WITH RECURSIVE seen AS (
    (SELECT kickoff_id FROM {table} WHERE kickoff_id > %(after)s ORDER BY kickoff_id LIMIT 1)
     UNION ALL
    SELECT (SELECT kickoff_id FROM {table} WHERE kickoff_id > seen.kickoff_id ORDER BY kickoff_id LIMIT 1)
      FROM seen
     WHERE seen.kickoff_id IS NOT NULL
), looked_at AS MATERIALIZED (
    SELECT kickoff_id FROM seen WHERE kickoff_id IS NOT NULL LIMIT %(limit)s
)
SELECT count(*) AS count, (array_agg(kickoff_id ORDER BY kickoff_id DESC))[1] AS last,
       array_agg(kickoff_id) FILTER (WHERE NOT EXISTS (SELECT FROM kickoffs WHERE id = kickoff_id)) AS orphans
  FROM looked_at
