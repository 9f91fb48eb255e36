-- Nothing comes back from any of these when the run is no longer the kickoff's, which went on without it.
-- A kickoff that is asked to stop has the words for its end in `error` from then on; what it is stopped for counts, not how it ended.

-- name: settle
WITH settled AS (
    UPDATE kickoffs
       SET state = %(state)s, reason = %(reason)s, error = CASE WHEN %(state)s = 'CANCELLED' THEN coalesce(error, %(error)s) ELSE %(error)s END,
           output = %(output)s::json, structured = %(structured)s::json, token_usage = %(token_usage)s::json,
           warnings = CASE WHEN %(warnings)s::text = '[]' THEN warnings ELSE (warnings::jsonb || coalesce((
               SELECT jsonb_agg(new)
                 FROM jsonb_array_elements(%(warnings)s::jsonb) AS new
                WHERE NOT EXISTS (SELECT FROM jsonb_array_elements(warnings::jsonb) AS told WHERE told = new)), '[]'))::json END,
           finished_at = now(), worker_id = NULL, lease_until = NULL, waiting_for = NULL
     WHERE id = %(kickoff)s AND attempt = %(attempt)s AND state = 'STARTED'
    RETURNING id, deployment_id, concurrency_key
), closed AS (
    UPDATE task_records
       SET state = CASE task_records.state WHEN 'running' THEN 'failed' ELSE 'skipped' END,
           finished_at = CASE task_records.state WHEN 'running' THEN now() END
      FROM settled
     WHERE kickoff_id = settled.id AND task_records.state IN ('pending_run', 'running', 'pending_human_input')
), following AS (
    SELECT first.id
      FROM settled
     CROSS JOIN LATERAL (
           SELECT id
             FROM kickoffs
            WHERE deployment_id = settled.deployment_id AND concurrency_key = settled.concurrency_key
              AND state = 'PENDING' AND NOT ready AND run_at IS NULL
            ORDER BY priority DESC, id
            LIMIT 1
              FOR UPDATE SKIP LOCKED
           ) AS first
     WHERE settled.concurrency_key IS NOT NULL AND NOT EXISTS (
           SELECT FROM kickoffs AS held
            WHERE held.deployment_id = settled.deployment_id AND held.concurrency_key = settled.concurrency_key AND held.id <> settled.id
              AND (held.state = 'STARTED' OR held.state = 'PENDING_HUMAN_INPUT' OR (held.state = 'PENDING' AND held.ready)))
), promoted AS (
    UPDATE kickoffs SET ready = true FROM following WHERE kickoffs.id = following.id
    RETURNING pg_notify('windlass_kickoffs', '')
)
SELECT pg_notify('windlass_ended', id::text), (SELECT count(*) FROM promoted) FROM settled

-- name: put_back
-- The run was lost. It was one loss too many: nothing comes back either.
WITH lost AS (
    UPDATE kickoffs
       SET state = CASE WHEN stop_requested_at IS NULL THEN 'PENDING' ELSE 'CANCELLED' END,
           reason = CASE WHEN stop_requested_at IS NOT NULL THEN 'cancelled' END,
           finished_at = CASE WHEN stop_requested_at IS NOT NULL THEN now() END,
           ready = false,
           run_at = CASE WHEN stop_requested_at IS NULL
                         THEN now() + least(60, power(2, least(losses, 6))) * (0.8 + 0.4 * random()) * interval '1 second' END,
           losses = losses + 1, worker_id = NULL, lease_until = NULL, waiting_for = NULL
     WHERE id = %(kickoff)s AND attempt = %(attempt)s AND state = 'STARTED' AND (losses < %(max_losses)s OR stop_requested_at IS NOT NULL)
    RETURNING id, state
), closed AS (
    UPDATE task_records
       SET state = CASE task_records.state WHEN 'running' THEN 'failed' ELSE 'skipped' END,
           finished_at = CASE task_records.state WHEN 'running' THEN now() END
      FROM lost
     WHERE kickoff_id = lost.id AND lost.state = 'CANCELLED' AND task_records.state IN ('pending_run', 'running', 'pending_human_input')
)
SELECT state, CASE state WHEN 'CANCELLED' THEN pg_notify('windlass_ended', id::text) END FROM lost

-- name: release
-- A worker that stops gives back whatever is its own, also a claim whose answer it did not get to hear.
WITH released AS (
    UPDATE kickoffs
       SET state = CASE WHEN stop_requested_at IS NULL THEN 'PENDING' ELSE 'CANCELLED' END,
           reason = CASE WHEN stop_requested_at IS NOT NULL THEN 'cancelled' END,
           finished_at = CASE WHEN stop_requested_at IS NOT NULL THEN now() END,
           worker_id = NULL, lease_until = NULL, waiting_for = NULL
     WHERE worker_id = %(worker)s AND state = 'STARTED'
    RETURNING id, attempt, state
), closed AS (
    UPDATE task_records
       SET state = CASE task_records.state WHEN 'running' THEN 'failed' ELSE 'skipped' END,
           finished_at = CASE task_records.state WHEN 'running' THEN now() END
      FROM released
     WHERE kickoff_id = released.id AND released.state = 'CANCELLED' AND task_records.state IN ('pending_run', 'running', 'pending_human_input')
)
SELECT id, attempt, state,
       CASE state WHEN 'PENDING' THEN pg_notify('windlass_kickoffs', '') ELSE pg_notify('windlass_ended', id::text) END
  FROM released

-- name: reap
-- Leases that ended: their worker is dead, or cut off and about to end its runs itself. SKIP LOCKED: another reaper has the row.
WITH silent AS (
    SELECT id,
           CASE WHEN stop_requested_at IS NOT NULL THEN 'CANCELLED' WHEN losses < %(max_losses)s THEN 'PENDING' ELSE 'FAILED' END AS becomes
      FROM kickoffs
     WHERE state = 'STARTED' AND lease_until < now()
     ORDER BY lease_until
     LIMIT %(limit)s
       FOR UPDATE SKIP LOCKED
), reaped AS (
    UPDATE kickoffs
       SET state = becomes,
           reason = CASE becomes WHEN 'CANCELLED' THEN 'cancelled' WHEN 'FAILED' THEN 'lost' END,
           error = CASE becomes WHEN 'CANCELLED' THEN error WHEN 'FAILED' THEN %(error)s END,
           finished_at = CASE becomes WHEN 'PENDING' THEN NULL ELSE now() END,
           losses = losses + 1, worker_id = NULL, lease_until = NULL, waiting_for = NULL
      FROM silent
     WHERE kickoffs.id = silent.id
    RETURNING kickoffs.id, kickoffs.state
), closed AS (
    UPDATE task_records
       SET state = CASE task_records.state WHEN 'running' THEN 'failed' ELSE 'skipped' END,
           finished_at = CASE task_records.state WHEN 'running' THEN now() END
      FROM reaped
     WHERE kickoff_id = reaped.id AND reaped.state <> 'PENDING' AND task_records.state IN ('pending_run', 'running', 'pending_human_input')
)
SELECT id, state,
       CASE state WHEN 'PENDING' THEN pg_notify('windlass_kickoffs', '') ELSE pg_notify('windlass_ended', id::text) END
  FROM reaped

-- name: end_all_leases
UPDATE kickoffs SET lease_until = now() - interval '1 second' WHERE state = 'STARTED'

-- name: stop
-- What waits ends here and now; what runs is its worker's to end, and is nobody's to run again. A claim that comes in between is seen: the
-- row is read again once it is ours to change.
WITH asked AS (
    UPDATE kickoffs
       SET state = CASE state WHEN 'STARTED' THEN 'STARTED' ELSE 'CANCELLED' END,
           reason = CASE state WHEN 'STARTED' THEN NULL ELSE 'cancelled' END,
           finished_at = CASE state WHEN 'STARTED' THEN NULL ELSE now() END,
           error = CASE WHEN stop_requested_at IS NULL THEN %(error)s ELSE error END,
           stop_requested_at = coalesce(stop_requested_at, now())
     WHERE id = %(kickoff)s AND state IN ('PENDING', 'STARTED', 'PENDING_HUMAN_INPUT')
    RETURNING id, state, version_id, deployment_id, concurrency_key
), skipped AS (
    INSERT INTO task_records (kickoff_id, position, task_id, key, name, agent, state)
    SELECT asked.id, position, task_id, key, name, agent, 'skipped'
      FROM asked
      JOIN registered_tasks USING (version_id)
     WHERE asked.state = 'CANCELLED'
        ON CONFLICT DO NOTHING
), closed AS (
    UPDATE task_records
       SET state = CASE task_records.state WHEN 'running' THEN 'failed' ELSE 'skipped' END,
           finished_at = CASE task_records.state WHEN 'running' THEN now() END
      FROM asked
     WHERE kickoff_id = asked.id AND asked.state = 'CANCELLED' AND task_records.state IN ('pending_run', 'running', 'pending_human_input')
), following AS (
    SELECT first.id
      FROM asked
     CROSS JOIN LATERAL (
           SELECT id
             FROM kickoffs
            WHERE deployment_id = asked.deployment_id AND concurrency_key = asked.concurrency_key AND id <> asked.id
              AND state = 'PENDING' AND NOT ready AND run_at IS NULL
            ORDER BY priority DESC, id
            LIMIT 1
              FOR UPDATE SKIP LOCKED
           ) AS first
     WHERE asked.state = 'CANCELLED' AND asked.concurrency_key IS NOT NULL AND NOT EXISTS (
           SELECT FROM kickoffs AS held
            WHERE held.deployment_id = asked.deployment_id AND held.concurrency_key = asked.concurrency_key AND held.id <> asked.id
              AND (held.state = 'STARTED' OR held.state = 'PENDING_HUMAN_INPUT' OR (held.state = 'PENDING' AND held.ready)))
), promoted AS (
    UPDATE kickoffs SET ready = true FROM following WHERE kickoffs.id = following.id
    RETURNING pg_notify('windlass_kickoffs', '')
)
SELECT state, pg_notify(CASE state WHEN 'STARTED' THEN 'windlass_stops' ELSE 'windlass_ended' END, id::text),
       (SELECT count(*) FROM promoted)
  FROM asked

-- name: state
SELECT state FROM kickoffs WHERE id = %(kickoff)s
