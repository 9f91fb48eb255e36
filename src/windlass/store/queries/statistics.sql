-- `moves` finds the kickoffs that ended, were accepted or started in a window. OFFSET 0 forces a look-up for each deployment and kickoff, and
-- each ORDER BY names the index, as the settings of the statements avoid scans and sorts. The id of a kickoff has the time of a server's clock,
-- so ids narrow the range that is read, and the time of PostgreSQL's clock decides.

-- name: moves
ended AS MATERIALIZED (
    SELECT deployments.id AS deployment_id, found.state, found.started_at, found.finished_at, found.run_time
      FROM deployments
     CROSS JOIN LATERAL (
           SELECT state, started_at, finished_at, finished_at - started_at - paused_time(kickoffs) AS run_time
             FROM kickoffs
            WHERE deployment_id = deployments.id AND {ended}
            ORDER BY finished_at
           OFFSET 0
           ) AS found
), accepted AS MATERIALIZED (
    SELECT created_at FROM kickoffs WHERE {accepted} ORDER BY id
), started AS MATERIALIZED (
    SELECT first.started_at,
           first.started_at - CASE WHEN due_at <= first.started_at THEN due_at ELSE created_at END AS waited
      FROM (SELECT kickoff_id, started_at FROM attempts WHERE attempt = 1 AND {started} ORDER BY started_at OFFSET 0) AS first
     CROSS JOIN LATERAL (SELECT created_at, due_at FROM kickoffs WHERE id = first.kickoff_id OFFSET 0) AS kickoff
), minutes AS (
    SELECT minute, sum(accepted)::int AS accepted, sum(started)::int AS started, sum(ended)::int AS ended, sum(failed)::int AS failed
      FROM (SELECT date_trunc('minute', created_at, 'UTC') AS minute, 1 AS accepted, 0 AS started, 0 AS ended, 0 AS failed FROM accepted
             UNION ALL
            SELECT date_trunc('minute', started_at, 'UTC'), 0, 1, 0, 0 FROM started
             UNION ALL
            SELECT date_trunc('minute', finished_at, 'UTC'), 0, 0, 1, (state IN ('FAILED', 'TIMED_OUT'))::int FROM ended) AS move
     GROUP BY minute
), waits AS (
    SELECT date_trunc('minute', started_at, 'UTC') AS minute, duration_bucket(waited) AS bucket, count(*)::int AS count
      FROM started
     GROUP BY 1, 2
)

-- name: lock_progress
-- Of two servers one counts; the other one finds no row. A long time is counted in parts.
SELECT greatest(counted_until, now() - %(keep)s::interval) AS since,
       least(now() - %(lag)s::interval, greatest(counted_until, now() - %(keep)s::interval) + %(part)s::interval) AS until
  FROM statistics_progress
   FOR UPDATE SKIP LOCKED

-- name: set_progress
UPDATE statistics_progress SET counted_until = %(until)s

-- name: count
WITH {moves}, hours AS (
    INSERT INTO statistics_hours (deployment_id, hour, ended, succeeded, failed)
    SELECT deployment_id, date_trunc('hour', finished_at, 'UTC'), count(*), count(*) FILTER (WHERE state = 'SUCCESS'),
           count(*) FILTER (WHERE state IN ('FAILED', 'TIMED_OUT'))
      FROM ended
     GROUP BY 1, 2
        ON CONFLICT (deployment_id, hour) DO UPDATE
       SET ended = statistics_hours.ended + excluded.ended, succeeded = statistics_hours.succeeded + excluded.succeeded,
           failed = statistics_hours.failed + excluded.failed
), durations AS (
    INSERT INTO statistics_durations (deployment_id, hour, bucket, count)
    SELECT deployment_id, date_trunc('hour', finished_at, 'UTC'), duration_bucket(run_time), count(*)
      FROM ended
     WHERE started_at IS NOT NULL AND state <> 'CANCELLED'
     GROUP BY 1, 2, 3
        ON CONFLICT (deployment_id, hour, bucket) DO UPDATE SET count = statistics_durations.count + excluded.count
), waited AS (
    INSERT INTO statistics_waits (minute, bucket, count)
    SELECT minute, bucket, count FROM waits
        ON CONFLICT (minute, bucket) DO UPDATE SET count = statistics_waits.count + excluded.count
)
INSERT INTO statistics_minutes (minute, accepted, started, ended, failed)
SELECT minute, accepted, started, ended, failed FROM minutes
    ON CONFLICT (minute) DO UPDATE
   SET accepted = statistics_minutes.accepted + excluded.accepted, started = statistics_minutes.started + excluded.started,
       ended = statistics_minutes.ended + excluded.ended, failed = statistics_minutes.failed + excluded.failed

-- name: forget_hours
DELETE FROM statistics_hours WHERE hour < now() - %(keep)s::interval

-- name: forget_durations
DELETE FROM statistics_durations WHERE hour < now() - %(keep)s::interval

-- name: forget_minutes
DELETE FROM statistics_minutes WHERE minute < now() - %(keep)s::interval

-- name: forget_waits
DELETE FROM statistics_waits WHERE minute < now() - %(keep)s::interval

-- name: uncounted
-- The window of the reads: what is not counted yet. The first condition, whose value the planner knows, makes it choose the index.
{column} >= now() - %(most)s::interval AND {column} >= (SELECT counted_until FROM statistics_progress)

-- name: uncounted_ids
id >= first_id(now() - %(most)s::interval - %(apart)s::interval)
AND id >= first_id((SELECT counted_until FROM statistics_progress) - %(apart)s::interval)

-- name: crews
-- `ended` and `failed` have the numbers of 24 hours, the oldest one first. The last one is the current hour.
WITH page AS MATERIALIZED (
    SELECT id FROM unnest(%(deployments)s::uuid[]) AS id
), counted AS (
    SELECT deployment_id, hour, ended, succeeded, failed
      FROM statistics_hours
     WHERE deployment_id = ANY (%(deployments)s::uuid[]) AND hour > date_trunc('hour', now(), 'UTC') - interval '24 hours'
     UNION ALL
    SELECT page.id, date_trunc('hour', finished_at, 'UTC'), count(*), count(*) FILTER (WHERE state = 'SUCCESS'),
           count(*) FILTER (WHERE state IN ('FAILED', 'TIMED_OUT'))
      FROM page
     CROSS JOIN LATERAL (SELECT state, finished_at FROM kickoffs WHERE deployment_id = page.id AND {ended} ORDER BY finished_at OFFSET 0) AS found
     GROUP BY 1, 2
), hours AS (
    SELECT deployment_id, (extract(epoch FROM date_trunc('hour', now(), 'UTC') - hour) / 3600)::int AS ago, sum(ended)::int AS ended,
           sum(succeeded)::int AS succeeded, sum(failed)::int AS failed
      FROM counted
     GROUP BY 1, 2
), summed AS (
    SELECT deployment_id, array_agg(ago) AS ago, array_agg(ended) AS ended, array_agg(failed) AS failed, sum(succeeded)::int AS succeeded
      FROM hours
     GROUP BY deployment_id
)
SELECT page.id AS deployment, date_trunc('hour', now(), 'UTC') AS hour, coalesce(ago, '{{}}') AS ago, coalesce(ended, '{{}}') AS ended, coalesce(failed, '{{}}') AS failed,
       coalesce(succeeded, 0) AS succeeded, last.finished_at AS last_ended_at,
       failure.id AS failure, failure.finished_at AS failed_at, failure.state AS failed_as, failure.reason, failure.error
  FROM page
  LEFT JOIN summed ON summed.deployment_id = page.id
  LEFT JOIN LATERAL (
       SELECT finished_at
         FROM kickoffs
        WHERE deployment_id = page.id AND finished_at IS NOT NULL
        ORDER BY finished_at DESC
        LIMIT 1
       ) AS last ON true
  LEFT JOIN LATERAL (
       SELECT id, finished_at, state, reason, left(error, %(most_error)s) AS error
         FROM kickoffs
        WHERE deployment_id = page.id AND state IN ('FAILED', 'TIMED_OUT')
        ORDER BY finished_at DESC
        LIMIT 1
       ) AS failure ON true

-- name: durations
SELECT bucket, sum(count)::int AS count
  FROM (SELECT bucket, count
          FROM statistics_durations
         WHERE deployment_id = %(deployment)s AND hour > date_trunc('hour', now(), 'UTC') - interval '24 hours'
         UNION ALL
        SELECT duration_bucket(run_time), 1
          FROM (SELECT finished_at - started_at - paused_time(kickoffs) AS run_time
                  FROM kickoffs
                 WHERE deployment_id = %(deployment)s AND {ended} AND started_at IS NOT NULL AND state <> 'CANCELLED'
                ORDER BY finished_at
                OFFSET 0) AS found) AS run
 GROUP BY bucket
 ORDER BY bucket

-- name: server
-- Returns the minutes of the last hour and the hours of the last 24, and the waits of both. `span` is 'minute' or 'hour'. A row with a
-- `bucket` is of the waits: `started` is their number.
WITH {moves}, every_minute AS MATERIALIZED (
    SELECT minute, accepted, started, ended, failed
      FROM statistics_minutes
     WHERE minute >= date_trunc('hour', now(), 'UTC') - interval '23 hours'
     UNION ALL
    SELECT minute, accepted, started, ended, failed FROM minutes
), every_wait AS MATERIALIZED (
    SELECT minute, bucket, count
      FROM statistics_waits
     WHERE minute >= date_trunc('hour', now(), 'UTC') - interval '23 hours'
     UNION ALL
    SELECT minute, bucket, count FROM waits
)
SELECT 'minute' AS span, minute AS at, NULL::smallint AS bucket, sum(accepted)::int AS accepted, sum(started)::int AS started,
       sum(ended)::int AS ended, sum(failed)::int AS failed
  FROM every_minute
 WHERE minute > date_trunc('minute', now(), 'UTC') - interval '60 minutes'
 GROUP BY minute
 UNION ALL
SELECT 'hour', date_trunc('hour', minute, 'UTC'), NULL::smallint, sum(accepted)::int, sum(started)::int, sum(ended)::int, sum(failed)::int
  FROM every_minute
 GROUP BY 2
 UNION ALL
SELECT 'minute', minute, bucket, 0, sum(count)::int, 0, 0
  FROM every_wait
 WHERE minute > date_trunc('minute', now(), 'UTC') - interval '60 minutes'
 GROUP BY minute, bucket
 UNION ALL
SELECT 'hour', date_trunc('hour', minute, 'UTC'), bucket, 0, sum(count)::int, 0, 0
  FROM every_wait
 GROUP BY 2, 3
 ORDER BY bucket

-- name: state
SELECT now() AS now, counted_until FROM statistics_progress

-- name: database
SELECT pg_database_size(current_database()) AS size, current_setting('max_connections')::int AS most_connections,
       (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend') AS connections
