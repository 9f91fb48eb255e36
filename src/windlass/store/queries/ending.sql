-- Each of these returns no row when the kickoff has gone on to another attempt or has ended. The trigger follow_kickoff applies the
-- consequences of a change of state: task records, attempt, concurrency key and notifications. reporting.sql has the end of a run.

-- name: requeue
-- The run was lost. Without a process it counts as an attempt that never started, not as a loss. Returns no row either when the kickoff
-- already has had %(max_losses)s losses, or when this is the %(most_unstarted)s-th attempt in a row that never started.
UPDATE kickoffs
   SET state = CASE WHEN stop_requested_at IS NULL THEN 'PENDING' ELSE 'CANCELLED' END,
       reason = CASE WHEN stop_requested_at IS NOT NULL THEN 'cancelled' END,
       finished_at = CASE WHEN stop_requested_at IS NOT NULL THEN now() END,
       ready = false,
       run_at = CASE WHEN stop_requested_at IS NULL
                     THEN now() + least(60, power(2, least(losses + unstarted, 6))) * (0.8 + 0.4 * random()) * interval '1 second' END,
       losses = losses + (process_started OR %(process_started)s)::int,
       unstarted = CASE WHEN process_started OR %(process_started)s THEN 0 ELSE unstarted + 1 END,
       isolated = isolated OR %(isolated)s, why = %(why)s, token_usage = %(token_usage)s::json,
       warnings = added_warnings(warnings, %(warnings)s), worker_id = NULL, lease_until = NULL, waiting_for = NULL
 WHERE id = %(kickoff)s AND attempt = %(attempt)s AND state = 'STARTED'
   AND (stop_requested_at IS NOT NULL
        OR CASE WHEN process_started OR %(process_started)s THEN losses < %(max_losses)s ELSE unstarted + 1 < %(most_unstarted)s END)
RETURNING state

-- name: retry
-- The run failed, and the options of the project request another attempt.
UPDATE kickoffs
   SET state = 'PENDING', ready = false, run_at = now() + %(pause)s, retries = retries + 1, why = %(why)s,
       token_usage = %(token_usage)s::json, warnings = added_warnings(warnings, %(warnings)s),
       worker_id = NULL, lease_until = NULL, waiting_for = NULL
 WHERE id = %(kickoff)s AND attempt = %(attempt)s AND state = 'STARTED' AND stop_requested_at IS NULL
RETURNING id

-- name: release
-- A stopping worker requeues all its kickoffs except those in %(running)s, including claims whose answer it did not receive.
UPDATE kickoffs
   SET state = CASE WHEN stop_requested_at IS NULL THEN 'PENDING' ELSE 'CANCELLED' END,
       reason = CASE WHEN stop_requested_at IS NOT NULL THEN 'cancelled' END,
       finished_at = CASE WHEN stop_requested_at IS NOT NULL THEN now() END,
       why = %(why)s, worker_id = NULL, lease_until = NULL, waiting_for = NULL
 WHERE worker_id = %(worker)s AND state = 'STARTED' AND id <> ALL (%(running)s)
RETURNING id, attempt, state

-- name: reap
-- The worker of an ended lease is dead, or is disconnected and ends its runs itself. SKIP LOCKED: another server reaps the row already.
-- %(except_for)s are kickoffs of the worker that reaps: it renews their leases when another statement has released their rows.
WITH silent AS (
    SELECT id, attempt, worker_id, lease_until, process_started AS started,
           CASE WHEN stop_requested_at IS NOT NULL THEN 'CANCELLED'
                WHEN CASE WHEN process_started THEN losses < %(max_losses)s ELSE unstarted + 1 < %(most_unstarted)s END THEN 'PENDING'
                ELSE 'FAILED' END AS becomes
      FROM kickoffs
     WHERE state = 'STARTED' AND lease_until < now() AND id <> ALL (%(except_for)s)
     ORDER BY lease_until
     LIMIT %(limit)s
       FOR UPDATE SKIP LOCKED
), described AS (  -- `happened` names the machine, and the seconds since the last report of the worker
    SELECT silent.id, becomes, started,
           format(CASE WHEN started THEN %(why)s::text ELSE %(why_unstarted)s::text END, attempts.host,
                  round(extract(epoch FROM clock_timestamp() - coalesce(seen_at, lease_until)))) AS happened
      FROM silent
      LEFT JOIN attempts ON attempts.kickoff_id = silent.id AND attempts.attempt = silent.attempt
      LEFT JOIN workers ON workers.id = silent.worker_id
)
UPDATE kickoffs
   SET state = becomes,
       reason = CASE becomes WHEN 'CANCELLED' THEN 'cancelled' WHEN 'FAILED' THEN 'lost' END,
       error = CASE becomes WHEN 'CANCELLED' THEN error WHEN 'FAILED' THEN format('%%s The last time: %%s.', CASE WHEN started THEN %(error)s::text ELSE %(error_unstarted)s::text END, happened) END,
       finished_at = CASE becomes WHEN 'PENDING' THEN NULL ELSE now() END,
       losses = losses + started::int, unstarted = CASE WHEN started THEN 0 ELSE unstarted + 1 END,
       why = happened, worker_id = NULL, lease_until = NULL, waiting_for = NULL
  FROM described
 WHERE kickoffs.id = described.id
RETURNING kickoffs.id, kickoffs.state

-- name: end_all_leases
UPDATE kickoffs SET lease_until = now() - interval '1 second' WHERE state = 'STARTED'

-- name: stop
-- A waiting kickoff ends at once. A running one is ended by its worker and never runs again. A concurrent claim is noticed, because
-- PostgreSQL reads the row again after it has waited for the row lock.
WITH asked AS (
    UPDATE kickoffs
       SET state = CASE state WHEN 'STARTED' THEN 'STARTED' ELSE 'CANCELLED' END,
           reason = CASE state WHEN 'STARTED' THEN NULL ELSE 'cancelled' END,
           finished_at = CASE state WHEN 'STARTED' THEN NULL ELSE now() END,
           error = CASE WHEN stop_requested_at IS NULL THEN %(error)s ELSE error END,
           stopped_by = CASE WHEN stop_requested_at IS NULL THEN %(by)s::text ELSE stopped_by END,
           stop_requested_at = coalesce(stop_requested_at, now())
     WHERE id = %(kickoff)s AND state IN ('PENDING', 'STARTED', 'PENDING_HUMAN_INPUT')
    RETURNING id, deployment_id, state, stop_requested_at = now() AS is_first
), recorded AS (
    INSERT INTO audit_log (id, user_id, "user", token_id, action, target, details, address)
    SELECT %(entry)s::uuid, %(user_id)s::uuid, %(user)s::text, %(token_id)s::uuid, 'kickoff.stop', asked.id::text, json_build_object('deployment', slug), %(address)s::text
      FROM asked
      JOIN deployments ON deployments.id = asked.deployment_id
     WHERE is_first AND %(recorded)s::bool
)
SELECT state, CASE state WHEN 'STARTED' THEN pg_notify('windlass_stops', id::text) END FROM asked

-- name: matching
-- Returns kickoffs to stop, in the order in which to stop them. Those that hold no concurrency key are first, so that no key is given to a
-- kickoff that will be stopped too. Each branch reads an index that contains only open kickoffs. A
-- started kickoff has a lease: the condition leads the planner to the index of leases.
WITH open AS (
    SELECT 1 AS step, id, state, state AS shown, user_id, created_at
      FROM kickoffs
     WHERE deployment_id = %(deployment)s AND state = 'PENDING' AND NOT ready
     UNION ALL
    SELECT 2, id, state, state, user_id, created_at FROM kickoffs WHERE deployment_id = %(deployment)s AND state = 'PENDING' AND ready
     UNION ALL
    SELECT 3, id, state, state, user_id, created_at FROM kickoffs WHERE deployment_id = %(deployment)s AND state = 'PENDING_HUMAN_INPUT'
     UNION ALL
    SELECT 4, id, state, state, user_id, created_at
      FROM kickoffs
     WHERE deployment_id = %(deployment)s AND state = 'STARTED' AND stop_requested_at IS NULL AND waiting_for IS DISTINCT FROM 'human'
     UNION ALL
    SELECT 4, id, state, 'PENDING_HUMAN_INPUT', user_id, created_at
      FROM kickoffs
     WHERE lease_until IS NOT NULL AND deployment_id = %(deployment)s AND state = 'STARTED' AND stop_requested_at IS NULL AND waiting_for = 'human'
)
SELECT id, state, now() AS read_at
  FROM open
 WHERE shown = ANY (%(states)s) AND (%(owner)s::uuid IS NULL OR user_id = %(owner)s::uuid)
   AND (%(user)s::text IS NULL OR user_id = (SELECT id FROM users WHERE name = %(user)s::text))
   AND created_at <= coalesce(%(before)s::timestamptz, now())
 ORDER BY step, id DESC
 LIMIT %(limit)s

-- name: stop_waiting
-- Locks the rows in the order of their ids, so that two such statements can't deadlock. Kickoffs that were claimed meanwhile are omitted.
-- All are of one deployment.
WITH chosen AS (
    SELECT id FROM kickoffs WHERE id = ANY (%(kickoffs)s) AND state IN ('PENDING', 'PENDING_HUMAN_INPUT') ORDER BY id FOR UPDATE
), ended AS (
    UPDATE kickoffs
       SET state = 'CANCELLED', reason = 'cancelled', finished_at = now(),
           error = CASE WHEN stop_requested_at IS NULL THEN %(error)s ELSE error END,
           stopped_by = CASE WHEN stop_requested_at IS NULL THEN %(by)s::text ELSE stopped_by END,
           stop_requested_at = coalesce(stop_requested_at, now())
      FROM chosen
     WHERE kickoffs.id = chosen.id
    RETURNING kickoffs.id, deployment_id
), recorded AS (
    INSERT INTO audit_log (id, user_id, "user", token_id, action, target, details, address)
    SELECT %(entry)s::uuid, %(user_id)s::uuid, %(user)s::text, %(token_id)s::uuid, 'kickoff.stop_all', min(slug), json_build_object('kickoffs', count(*)), %(address)s::text
      FROM ended
      JOIN deployments ON deployments.id = ended.deployment_id
     WHERE %(recorded)s::bool
    HAVING count(*) > 0
)
SELECT id FROM ended

-- name: state
SELECT state FROM kickoffs WHERE id = %(kickoff)s
