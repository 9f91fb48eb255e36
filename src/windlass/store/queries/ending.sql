-- Nothing comes back from any of these when the run is no longer the kickoff's, which went on without it. What follows from a move (its task
-- records, the attempt, the turn of its concurrency key, who is told) a trigger does: follow_kickoff.
-- A kickoff that is asked to stop has the words for its end in `error` from then on; what it is stopped for counts, not how it ended.

-- name: settle
UPDATE kickoffs
   SET state = %(state)s, reason = %(reason)s, error = CASE WHEN %(state)s = 'CANCELLED' THEN coalesce(error, %(error)s) ELSE %(error)s END,
       output = coalesce(%(output)s::json, (SELECT output FROM task_records WHERE kickoff_id = %(kickoff)s AND position = %(output_of)s)),
       structured = %(structured)s::json, token_usage = %(token_usage)s::json,
       warnings = added_warnings(warnings, %(warnings)s), finished_at = now(), worker_id = NULL, lease_until = NULL, waiting_for = NULL
 WHERE id = %(kickoff)s AND attempt = %(attempt)s AND state = 'STARTED'
RETURNING id

-- name: put_back
-- The run was lost. It was one loss too many: nothing comes back either.
UPDATE kickoffs
   SET state = CASE WHEN stop_requested_at IS NULL THEN 'PENDING' ELSE 'CANCELLED' END,
       reason = CASE WHEN stop_requested_at IS NOT NULL THEN 'cancelled' END,
       finished_at = CASE WHEN stop_requested_at IS NOT NULL THEN now() END,
       ready = false,
       run_at = CASE WHEN stop_requested_at IS NULL
                     THEN now() + least(60, power(2, least(losses, 6))) * (0.8 + 0.4 * random()) * interval '1 second' END,
       losses = losses + 1, alone = alone OR %(alone)s, why = %(why)s, token_usage = %(token_usage)s::json, warnings = added_warnings(warnings, %(warnings)s),
       worker_id = NULL, lease_until = NULL, waiting_for = NULL
 WHERE id = %(kickoff)s AND attempt = %(attempt)s AND state = 'STARTED' AND (losses < %(max_losses)s OR stop_requested_at IS NOT NULL)
RETURNING state

-- name: retry
-- The run failed, and the crew's project wants it tried again.
UPDATE kickoffs
   SET state = 'PENDING', ready = false, run_at = now() + %(pause)s, retries = retries + 1, why = %(why)s,
       token_usage = %(token_usage)s::json, warnings = added_warnings(warnings, %(warnings)s),
       worker_id = NULL, lease_until = NULL, waiting_for = NULL
 WHERE id = %(kickoff)s AND attempt = %(attempt)s AND state = 'STARTED' AND stop_requested_at IS NULL
RETURNING id

-- name: release
-- A worker that stops gives back whatever is its own and does not run on, also a claim whose answer it did not get to hear.
UPDATE kickoffs
   SET state = CASE WHEN stop_requested_at IS NULL THEN 'PENDING' ELSE 'CANCELLED' END,
       reason = CASE WHEN stop_requested_at IS NOT NULL THEN 'cancelled' END,
       finished_at = CASE WHEN stop_requested_at IS NOT NULL THEN now() END,
       why = %(why)s, worker_id = NULL, lease_until = NULL, waiting_for = NULL
 WHERE worker_id = %(worker)s AND state = 'STARTED' AND id <> ALL (%(running)s)
RETURNING id, attempt, state

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
)
UPDATE kickoffs
   SET state = becomes,
       reason = CASE becomes WHEN 'CANCELLED' THEN 'cancelled' WHEN 'FAILED' THEN 'lost' END,
       error = CASE becomes WHEN 'CANCELLED' THEN error WHEN 'FAILED' THEN %(error)s END,
       finished_at = CASE becomes WHEN 'PENDING' THEN NULL ELSE now() END,
       losses = losses + 1, why = %(why)s, worker_id = NULL, lease_until = NULL, waiting_for = NULL
  FROM silent
 WHERE kickoffs.id = silent.id
RETURNING kickoffs.id, kickoffs.state

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
    RETURNING id, state
)
SELECT state, CASE state WHEN 'STARTED' THEN pg_notify('windlass_stops', id::text) END FROM asked

-- name: state
SELECT state FROM kickoffs WHERE id = %(kickoff)s
