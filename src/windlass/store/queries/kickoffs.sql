-- Arrays are sent in binary form, %(...)b: in text form, quoting an output of 20 MB keeps the server busy for seconds.

-- name: accept
-- A batch: one statement, one commit, one wake-up. A row whose idempotency key is taken inserts nothing and comes back with the key's
-- kickoff and request. No two rows of one batch have the same key: INSERT ... ON CONFLICT can't touch a row twice.
WITH given AS (
    SELECT *
      FROM unnest(
           %(ids)b::uuid[], %(deployments)b::uuid[], %(versions)b::uuid[], %(users)b::uuid[], %(inputs)b::text[], %(metas)b::text[],
           %(unacted)b::text[], %(warnings)b::text[], %(keys)b::text[], %(digests)b::bytea[]
         ) AS row (id, deployment_id, version_id, user_id, inputs, meta, unacted, warnings, key, digest)
), reserved AS (
    INSERT INTO idempotency_keys (deployment_id, principal, key, request_digest, kickoff_id, expires_at)
    SELECT deployment_id, coalesce(user_id, deployment_id), key, digest, id, now() + %(keep)s
      FROM given
     WHERE key IS NOT NULL
     ORDER BY deployment_id, coalesce(user_id, deployment_id), key  -- as every batch does: else two could wait for each other
        ON CONFLICT (deployment_id, principal, key) DO UPDATE
       SET request_digest = excluded.request_digest, kickoff_id = excluded.kickoff_id, expires_at = excluded.expires_at
     WHERE idempotency_keys.expires_at <= now()
    RETURNING kickoff_id
), accepted AS (
    INSERT INTO kickoffs (id, deployment_id, version_id, user_id, inputs, meta, unacted, warnings)
    SELECT id, deployment_id, version_id, user_id, inputs::json, meta::json, unacted::json, warnings::json
      FROM given
     WHERE key IS NULL OR id IN (SELECT kickoff_id FROM reserved)
    RETURNING id
)
SELECT (SELECT array_agg(id) FROM accepted) AS accepted, pg_notify('windlass_kickoffs', '')

-- name: reserved
SELECT kickoff_id, request_digest
  FROM idempotency_keys
 WHERE deployment_id = %(deployment)s AND principal = %(principal)s AND key = %(key)s

-- name: forget_idempotency_keys
DELETE FROM idempotency_keys
 WHERE ctid = ANY (ARRAY (SELECT ctid FROM idempotency_keys WHERE expires_at <= now() LIMIT %(limit)s))

-- name: claim
-- Losing the race for a row means that another worker has it: SKIP LOCKED passes on to the next.
WITH next AS (
    SELECT id
      FROM kickoffs
     WHERE state = 'PENDING'
     ORDER BY id
     LIMIT %(slots)s
       FOR UPDATE SKIP LOCKED
)
UPDATE kickoffs
   SET state = 'STARTED', attempt = attempt + 1, worker_id = %(worker)s, lease_until = now() + %(lease)s,
       started_at = coalesce(started_at, now())
  FROM next, versions, deployments
 WHERE kickoffs.id = next.id AND versions.id = kickoffs.version_id AND deployments.id = kickoffs.deployment_id
RETURNING kickoffs.id, kickoffs.attempt, kickoffs.inputs, kickoffs.version_id, deployments.slug, versions.source, versions.manifest

-- name: clear_task_records
DELETE FROM task_records WHERE kickoff_id = ANY (%(kickoffs)s)

-- name: register_task_records
INSERT INTO task_records (kickoff_id, position, task_id, key, name, agent, state)
SELECT claimed.id, task.position, task.task_id, task.key, task.name, task.agent, 'pending_run'
  FROM unnest(%(kickoffs)b::uuid[], %(versions)b::uuid[]) AS claimed (id, version_id)
  JOIN versions ON versions.id = claimed.version_id
 CROSS JOIN LATERAL (
       SELECT ordinality - 1 AS position, given ->> 'task_id' AS task_id, given ->> 'key' AS key, given ->> 'name' AS name,
              given ->> 'agent' AS agent
         FROM json_array_elements(versions.manifest -> 'tasks') WITH ORDINALITY AS listed (given, ordinality)
       ) AS task

-- name: renew
-- Only what is still this worker's: a row that is missing from the answer was taken from it.  What it no longer runs is not named, and
-- its lease ends.
UPDATE kickoffs
   SET lease_until = now() + %(lease)s
 WHERE id = ANY (%(kickoffs)s) AND worker_id = %(worker)s AND state = 'STARTED'
RETURNING id, attempt

-- name: write_reports
-- Nothing is written once the kickoff has gone on to another attempt: then `live` is empty, and the caller's run is to end.
WITH live AS (
    SELECT id FROM kickoffs WHERE id = %(kickoff)s AND attempt = %(attempt)s AND state = 'STARTED' FOR SHARE
), stored AS (
    INSERT INTO events (kickoff_id, attempt, seq, type, at, payload)
    SELECT live.id, %(attempt)s, event.seq, event.type, to_timestamp(event.at), event.payload::json
      FROM live,
           unnest(%(seqs)b::bigint[], %(types)b::text[], %(ats)b::float8[], %(payloads)b::text[]) AS event (seq, type, at, payload)
        ON CONFLICT DO NOTHING  -- written before, when the answer to it was lost
), moved AS (
    INSERT INTO task_records (kickoff_id, position, task_id, key, name, agent, state, registered, output, execution_time,
                              started_at, finished_at)
    SELECT live.id, task.position, task.task_id, task.key, task.name, task.agent, task.state, task.registered, task.output::json,
           task.execution_time, to_timestamp(task.started_at), to_timestamp(task.finished_at)
      FROM live,
           unnest(%(positions)b::int[], %(task_ids)b::text[], %(task_keys)b::text[], %(names)b::text[], %(agents)b::text[],
                  %(states)b::text[], %(registered)b::bool[], %(outputs)b::text[], %(seconds)b::float8[], %(starts)b::float8[],
                  %(ends)b::float8[]
           ) AS task (position, task_id, key, name, agent, state, registered, output, execution_time, started_at, finished_at)
        ON CONFLICT (kickoff_id, position) DO UPDATE
       SET task_id = excluded.task_id, key = excluded.key, name = excluded.name, agent = excluded.agent, state = excluded.state,
           registered = excluded.registered, output = excluded.output, execution_time = excluded.execution_time,
           started_at = excluded.started_at, finished_at = excluded.finished_at
)
SELECT id FROM live

-- name: last_event
SELECT coalesce(max(seq), 0) AS seq FROM events WHERE kickoff_id = %(kickoff)s

-- name: settle
-- Nothing comes back when the run is no longer the kickoff's: its outcome counts for nothing then.
WITH settled AS (
    UPDATE kickoffs
       SET state = %(state)s, reason = %(reason)s, error = %(error)s, output = %(output)s::json, structured = %(structured)s::json,
           token_usage = %(token_usage)s::json, warnings = (warnings::jsonb || %(warnings)s::jsonb)::json, finished_at = now(),
           worker_id = NULL, lease_until = NULL
     WHERE id = %(kickoff)s AND attempt = %(attempt)s AND state = 'STARTED'
    RETURNING id
), closed AS (
    UPDATE task_records
       SET state = CASE task_records.state WHEN 'running' THEN 'failed' ELSE 'skipped' END,
           finished_at = CASE task_records.state WHEN 'running' THEN now() END
      FROM settled
     WHERE kickoff_id = settled.id AND task_records.state IN ('pending_run', 'running', 'pending_human_input')
)
SELECT pg_notify('windlass_ended', id::text) FROM settled

-- name: put_back
-- The run was lost, and the kickoff waits again. Nothing comes back when it is no longer the kickoff's, or was one loss too many.
UPDATE kickoffs
   SET state = 'PENDING', losses = losses + 1, worker_id = NULL, lease_until = NULL
 WHERE id = %(kickoff)s AND attempt = %(attempt)s AND state = 'STARTED' AND losses < %(max_losses)s
RETURNING pg_notify('windlass_kickoffs', '')

-- name: release
-- A worker that stops gives back whatever is its own, also a claim whose answer it did not get to hear.
UPDATE kickoffs
   SET state = 'PENDING', worker_id = NULL, lease_until = NULL
 WHERE worker_id = %(worker)s AND state = 'STARTED'
RETURNING id, attempt, pg_notify('windlass_kickoffs', '')

-- name: reap
-- Leases that ended: their worker is dead, or cut off and about to end its runs itself. SKIP LOCKED: another reaper has the row.
WITH silent AS (
    SELECT id
      FROM kickoffs
     WHERE state = 'STARTED' AND lease_until < now()
     ORDER BY lease_until
     LIMIT %(limit)s
       FOR UPDATE SKIP LOCKED
), reaped AS (
    UPDATE kickoffs
       SET state = CASE WHEN losses < %(max_losses)s THEN 'PENDING' ELSE 'FAILED' END,
           reason = CASE WHEN losses < %(max_losses)s THEN NULL ELSE 'lost' END,
           error = CASE WHEN losses < %(max_losses)s THEN NULL ELSE %(error)s END,
           finished_at = CASE WHEN losses < %(max_losses)s THEN NULL ELSE now() END,
           losses = losses + 1, worker_id = NULL, lease_until = NULL
      FROM silent
     WHERE kickoffs.id = silent.id
    RETURNING kickoffs.id, kickoffs.state
), closed AS (
    UPDATE task_records
       SET state = CASE task_records.state WHEN 'running' THEN 'failed' ELSE 'skipped' END,
           finished_at = CASE task_records.state WHEN 'running' THEN now() END
      FROM reaped
     WHERE kickoff_id = reaped.id AND reaped.state = 'FAILED' AND task_records.state IN ('pending_run', 'running', 'pending_human_input')
)
SELECT id, state,
       CASE state WHEN 'PENDING' THEN pg_notify('windlass_kickoffs', '') ELSE pg_notify('windlass_ended', id::text) END
  FROM reaped

-- name: end_all_leases
UPDATE kickoffs SET lease_until = now() - interval '1 second' WHERE state = 'STARTED'

-- name: statuses
-- What holds any JSON comes as text, to be passed on unread.
SELECT kickoffs.id, deployment_id, version_id, user_id, kickoffs.state, reason, error, attempt, meta::text, warnings::text,
       kickoffs.output::text, structured::text, token_usage::text, created_at, kickoffs.started_at, kickoffs.finished_at,
       records.tasks, records.total AS total_tasks, records.completed AS completed_tasks, records.current AS current_task,
       CASE kickoffs.state WHEN 'SUCCESS' THEN outputs.tasks END AS task_outputs
  FROM kickoffs
  LEFT JOIN LATERAL (
       SELECT json_agg(json_build_object(
                       'task_id', task_id, 'key', key, 'name', name, 'agent', agent, 'state', state, 'unregistered', NOT registered,
                       'started_at', to_char(started_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
                       'finished_at', to_char(finished_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))
                       ORDER BY position)::text AS tasks,
              count(*) AS total,
              count(*) FILTER (WHERE state = 'completed') AS completed,
              (array_agg(coalesce(name, task_id) ORDER BY position) FILTER (WHERE state = 'running'))[1] AS current
         FROM task_records
        WHERE kickoff_id = kickoffs.id
       ) AS records ON kickoffs.state <> 'PENDING'
  LEFT JOIN LATERAL (
       SELECT json_agg(json_build_object(
                       'task_id', task_id, 'name', name, 'output', output, 'agent', agent, 'execution_time', execution_time)
                       ORDER BY position)::text AS tasks
         FROM task_records
        WHERE kickoff_id = kickoffs.id AND state = 'completed'
       ) AS outputs ON kickoffs.state = 'SUCCESS'
 WHERE kickoffs.id = ANY (%(ids)s)

-- name: events
SELECT seq, attempt, type, at, payload
  FROM events
 WHERE kickoff_id = %(kickoff)s AND seq > %(after)s
 ORDER BY seq
 LIMIT %(limit)s
