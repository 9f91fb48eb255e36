-- name: deployments
SELECT deployments.id, slug, versions.source -> 'options' -> 'retention' AS retention
  FROM deployments
  LEFT JOIN versions ON versions.id = deployments.current_version
 WHERE deployments.id > %(after)s
 ORDER BY deployments.id
 LIMIT %(limit)s

-- name: ended
-- The first that ended after `after`, for longer than `age`; with all that ended at the very time of the last one, so that a next turn can go
-- on behind it.
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

-- name: drop_kickoffs
-- Only what has ended, and with it what is left of it, at once: nobody sees one without its tasks. Its events and its journal, which can be
-- many, are gone before.
WITH gone AS (
    DELETE FROM kickoffs
     WHERE id = ANY (%(kickoffs)s) AND state IN ('SUCCESS', 'FAILED', 'TIMED_OUT', 'CANCELLED')
    RETURNING id
), tasks AS (
    DELETE FROM task_records WHERE kickoff_id IN (SELECT id FROM gone)
), tries AS (
    DELETE FROM attempts WHERE kickoff_id IN (SELECT id FROM gone)
)
SELECT id FROM gone

-- name: seen
-- The next kickoffs that a table has rows of, each found by one look into its index, and which of them there are no more. A row of a kickoff is
-- never written before the kickoff is.
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
