-- Task records and warnings of a kickoff, as several statements write them.

-- The tasks of a version, from its manifest.
CREATE OR REPLACE FUNCTION registered_tasks(of_version uuid)
RETURNS TABLE ("position" integer, task_id text, key text, name text, agent text) LANGUAGE sql STABLE AS $$
    SELECT ordinality::int - 1, given ->> 'task_id', given ->> 'key', given ->> 'name', given ->> 'agent'
      FROM versions
     CROSS JOIN LATERAL json_array_elements(versions.manifest -> 'tasks') WITH ORDINALITY AS listed (given, ordinality)
     WHERE versions.id = of_version;
$$;

-- Adds the warnings of `new` that `old` does not contain. `new` is text, so that parameters need no cast.
CREATE OR REPLACE FUNCTION added_warnings(old json, new text) RETURNS json LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN new = '[]' THEN old ELSE (old::jsonb || coalesce((
               SELECT jsonb_agg(warning)
                 FROM jsonb_array_elements(new::jsonb) AS warning
                WHERE NOT EXISTS (SELECT FROM jsonb_array_elements(old::jsonb) AS known WHERE known = warning)), '[]'))::json END;
$$;

-- After a loss or a pause: tasks that are not in the journal run again. Their execution time until the last event of the lost run still counts.
-- With `keep_asked`, a task that waits for a person goes on to wait.
CREATE OR REPLACE FUNCTION reopen_tasks(of_kickoff uuid, keep_asked boolean) RETURNS void LANGUAGE sql AS $$
    UPDATE task_records
       SET state = 'pending_run', output = NULL, started_at = NULL, finished_at = NULL,
           execution_time = CASE WHEN state <> 'running' THEN execution_time
                                 ELSE coalesce(execution_time, 0) + greatest(0, extract(epoch FROM coalesce((
                                      SELECT at FROM events WHERE kickoff_id = of_kickoff ORDER BY seq DESC LIMIT 1), started_at) - started_at))
                            END
     WHERE kickoff_id = of_kickoff AND state <> 'pending_run' AND NOT (keep_asked AND state = 'pending_human_input')
       AND (state = 'running' OR NOT EXISTS (
           SELECT FROM journal WHERE journal.kickoff_id = of_kickoff AND journal.position = task_records.position));
$$;

-- At the end of the kickoff: no task stays open. Adds records for the tasks of `of_version` that have none. Adds nothing if it is NULL.
CREATE OR REPLACE FUNCTION close_tasks(of_kickoff uuid, of_version uuid) RETURNS void LANGUAGE sql AS $$
    INSERT INTO task_records (kickoff_id, position, task_id, key, name, agent, state)
    SELECT of_kickoff, position, task_id, key, name, agent, 'skipped'
      FROM registered_tasks(of_version)
        ON CONFLICT DO NOTHING;
    UPDATE task_records
       SET state = CASE state WHEN 'running' THEN 'failed' ELSE 'skipped' END,
           finished_at = CASE state WHEN 'running' THEN now() END
     WHERE kickoff_id = of_kickoff AND state IN ('pending_run', 'running', 'pending_human_input');
$$;
