-- The views, functions and the trigger of a database with migrations 1 to 6, which created them themselves.

CREATE VIEW registered_tasks AS
SELECT versions.id AS version_id, ordinality::int - 1 AS position, given ->> 'task_id' AS task_id, given ->> 'key' AS key,
       given ->> 'name' AS name, given ->> 'agent' AS agent
  FROM versions
 CROSS JOIN LATERAL json_array_elements(versions.manifest -> 'tasks') WITH ORDINALITY AS listed (given, ordinality);

-- Adds the warnings of `new` that `old` does not contain. `new` is text, so that parameters need no cast.
CREATE FUNCTION added_warnings(old json, new text) RETURNS json LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN new = '[]' THEN old ELSE (old::jsonb || coalesce((
               SELECT jsonb_agg(warning)
                 FROM jsonb_array_elements(new::jsonb) AS warning
                WHERE NOT EXISTS (SELECT FROM jsonb_array_elements(old::jsonb) AS told WHERE told = warning)), '[]'))::json END;
$$;

-- Claiming. All plans except index scans are disabled, sorting too. The planner's statistics are outdated just after a backlog has been
-- accepted. It would then choose a plan that reads the whole backlog. So each ORDER BY determines the index that is read.

CREATE FUNCTION key_is_held(of_deployment uuid, held_key text) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM (
            SELECT FROM kickoffs
             WHERE deployment_id = of_deployment AND concurrency_key = held_key AND (state = 'STARTED' OR state = 'PENDING_HUMAN_INPUT')
             ORDER BY priority DESC, id
             LIMIT 1) AS holder);
END
$$;

CREATE VIEW claimable AS
SELECT id, deployment_id, priority, concurrency_key
  FROM kickoffs
 WHERE state = 'PENDING' AND ready AND (concurrency_key IS NULL OR NOT key_is_held(deployment_id, concurrency_key));

-- A claim holds a lock, so it sees the claims of all other workers. Concurrency limits and keys therefore apply across all workers. The
-- function is one statement for its caller, and finishes without further input. So a worker that is stopped (SIGSTOP) in the middle can't
-- keep the lock.
CREATE FUNCTION claim_kickoffs(by_worker uuid, on_host text, free_slots integer, lease interval) RETURNS SETOF uuid
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('claim', 0));
    RETURN QUERY
    WITH started AS MATERIALIZED (
        SELECT deployment_id FROM kickoffs WHERE state = 'STARTED' ORDER BY lease_until
    ), running AS MATERIALIZED (
        SELECT deployment_id, count(*) AS runs FROM started GROUP BY deployment_id
    ), free AS (
        SELECT deployments.id, weight, coalesce(runs, 0) AS runs,
               least(free_slots, coalesce(concurrency - coalesce(runs, 0), free_slots)) AS room
          FROM deployments
          LEFT JOIN running ON running.deployment_id = deployments.id
         WHERE paused_at IS NULL
    ), tried AS (  -- one per slot is enough
        SELECT free.*
          FROM free
         CROSS JOIN LATERAL (
               SELECT id FROM claimable WHERE deployment_id = free.id ORDER BY priority DESC, id LIMIT 1
               ) AS head
         WHERE free.room > 0
         ORDER BY (runs + 1) / weight, head.id
         LIMIT free_slots
    ), candidates AS (  -- SKIP LOCKED: omits kickoffs that are being stopped just now
        SELECT first.*, tried.weight, tried.runs,
               row_number() OVER (PARTITION BY deployment_id, coalesce(concurrency_key, first.id::text)
                                      ORDER BY priority DESC, first.id) AS turn
          FROM tried
         CROSS JOIN LATERAL (
               SELECT * FROM claimable WHERE deployment_id = tried.id ORDER BY priority DESC, id LIMIT tried.room FOR UPDATE SKIP LOCKED
               ) AS first
    ), ranked AS (
        SELECT id, weight, runs, row_number() OVER (PARTITION BY deployment_id ORDER BY priority DESC, id) AS rank
          FROM candidates
         WHERE turn = 1
    ), chosen AS MATERIALIZED (
        SELECT id FROM ranked ORDER BY (runs + rank) / weight, id LIMIT free_slots
    ), claimed AS (
        UPDATE kickoffs
           SET state = 'STARTED', attempt = attempt + 1, worker_id = by_worker, lease_until = now() + lease,
               started_at = coalesce(started_at, now()), waiting_for = NULL
          FROM chosen
         WHERE kickoffs.id = chosen.id
        RETURNING kickoffs.id, kickoffs.version_id, kickoffs.attempt
    ), tried_again AS (
        INSERT INTO attempts (kickoff_id, attempt, worker_id, host, restored)
        SELECT claimed.id, claimed.attempt, by_worker, on_host,
               CASE WHEN claimed.attempt > 1 THEN (SELECT count(*) FROM journal WHERE kickoff_id = claimed.id) ELSE 0 END
          FROM claimed
    ), recorded AS (
        INSERT INTO task_records (kickoff_id, position, task_id, key, name, agent, state)
        SELECT claimed.id, position, task_id, key, name, agent, 'pending_run'
          FROM claimed
          JOIN registered_tasks USING (version_id)
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

-- Each change of a kickoff's state has these consequences in the same transaction. Its attempt ends. Its task records are reopened or
-- closed. The next kickoff with its concurrency key gets the key. Listeners are notified.

CREATE FUNCTION end_attempt(before kickoffs, after kickoffs) RETURNS void LANGUAGE sql AS $$
    UPDATE attempts
       SET ended_at = now(), why = CASE after.state WHEN 'PENDING' THEN after.why ELSE after.error END,
           ended_as = CASE WHEN after.state <> 'PENDING' THEN after.state
                           WHEN after.losses > before.losses THEN 'lost'
                           WHEN after.retries > before.retries THEN 'retried'
                           ELSE 'released' END
     WHERE kickoff_id = before.id AND attempt = before.attempt;
$$;

-- Tasks that are not in the journal run again. Their execution time until the last event of the lost run still counts.
CREATE FUNCTION reopen_tasks(of_kickoff uuid) RETURNS void LANGUAGE sql AS $$
    UPDATE task_records
       SET state = 'pending_run', output = NULL, started_at = NULL, finished_at = NULL,
           execution_time = CASE WHEN state <> 'running' THEN execution_time
                                 ELSE coalesce(execution_time, 0) + greatest(0, extract(epoch FROM coalesce((
                                      SELECT at FROM events WHERE kickoff_id = of_kickoff ORDER BY seq DESC LIMIT 1), started_at) - started_at))
                            END
     WHERE kickoff_id = of_kickoff AND state <> 'pending_run'
       AND (state = 'running' OR NOT EXISTS (
           SELECT FROM journal WHERE journal.kickoff_id = of_kickoff AND journal.position = task_records.position));
$$;

CREATE FUNCTION close_tasks(of_kickoff uuid, of_version uuid) RETURNS void LANGUAGE sql AS $$
    INSERT INTO task_records (kickoff_id, position, task_id, key, name, agent, state)
    SELECT of_kickoff, position, task_id, key, name, agent, 'skipped'
      FROM registered_tasks
     WHERE version_id = of_version
        ON CONFLICT DO NOTHING;
    UPDATE task_records
       SET state = CASE state WHEN 'running' THEN 'failed' ELSE 'skipped' END,
           finished_at = CASE state WHEN 'running' THEN now() END
     WHERE kickoff_id = of_kickoff AND state IN ('pending_run', 'running', 'pending_human_input');
$$;

CREATE FUNCTION give_turn(of_deployment uuid, freed_key text) RETURNS void LANGUAGE sql AS $$
    UPDATE kickoffs
       SET ready = true
     WHERE id = (SELECT id
                   FROM kickoffs
                  WHERE deployment_id = of_deployment AND concurrency_key = freed_key
                    AND state = 'PENDING' AND NOT ready AND run_at IS NULL
                  ORDER BY priority DESC, id
                  LIMIT 1
                    FOR UPDATE SKIP LOCKED)
       AND NOT EXISTS (
           SELECT FROM kickoffs
            WHERE deployment_id = of_deployment AND concurrency_key = freed_key
              AND (state = 'STARTED' OR state = 'PENDING_HUMAN_INPUT' OR (state = 'PENDING' AND ready)));
$$;

CREATE FUNCTION follow_kickoff() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.state IN ('STARTED', 'PENDING_HUMAN_INPUT') AND NEW.state <> 'PENDING_HUMAN_INPUT' THEN
        PERFORM end_attempt(OLD, NEW);
    END IF;
    IF NEW.state IN ('SUCCESS', 'FAILED', 'TIMED_OUT', 'CANCELLED') THEN
        PERFORM close_tasks(NEW.id, NEW.version_id);
        PERFORM pg_notify('windlass_ended', NEW.id::text);
    ELSIF NEW.state = 'PENDING' THEN
        IF OLD.state = 'STARTED' THEN
            PERFORM reopen_tasks(NEW.id);
        END IF;
        IF NEW.ready THEN
            PERFORM pg_notify('windlass_kickoffs', '');
        END IF;
    END IF;
    IF OLD.concurrency_key IS NOT NULL AND (OLD.ready OR OLD.state <> 'PENDING')
       AND NOT (NEW.state IN ('STARTED', 'PENDING_HUMAN_INPUT') OR (NEW.state = 'PENDING' AND NEW.ready)) THEN
        PERFORM give_turn(OLD.deployment_id, OLD.concurrency_key);
    END IF;
    RETURN NULL;
END
$$;

CREATE TRIGGER kickoff_moved AFTER UPDATE OF state, ready ON kickoffs
   FOR EACH ROW WHEN (NEW.state <> 'STARTED' AND (OLD.state, OLD.ready) IS DISTINCT FROM (NEW.state, NEW.ready))
   EXECUTE FUNCTION follow_kickoff();

