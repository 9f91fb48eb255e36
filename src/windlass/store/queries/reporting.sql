-- Arrays are sent in binary form, %(...)b: in text form, quoting an output of 20 MB keeps the server busy for seconds.

-- name: write_reports
-- When the kickoff has gone on to another attempt, `live` is empty and nothing is written. The caller must end its run.
WITH live AS (
    SELECT id FROM kickoffs WHERE id = %(kickoff)s AND attempt = %(attempt)s AND state = 'STARTED' FOR SHARE
), stored AS (
    INSERT INTO events (kickoff_id, attempt, seq, type, at, payload)
    SELECT live.id, %(attempt)s, event.seq, event.type, to_timestamp(event.at), event.payload::json
      FROM live,
           unnest(%(seqs)b::bigint[], %(types)b::text[], %(ats)b::float8[], %(payloads)b::text[]) AS event (seq, type, at, payload)
        ON CONFLICT DO NOTHING  -- a repeated write: the answer to the first one was lost
), moved AS (
    INSERT INTO task_records (kickoff_id, position, task_id, key, name, agent, state, registered, output, execution_time,
                              started_at, finished_at, attempt)
    SELECT live.id, task.position, task.task_id, task.key, task.name, task.agent, task.state, task.registered, task.output::json,
           task.execution_time, to_timestamp(task.started_at), to_timestamp(task.finished_at), %(attempt)s
      FROM live,
           unnest(%(positions)b::int[], %(task_ids)b::text[], %(task_keys)b::text[], %(names)b::text[], %(agents)b::text[],
                  %(states)b::text[], %(registered)b::bool[], %(outputs)b::text[], %(seconds)b::float8[], %(starts)b::float8[],
                  %(ends)b::float8[]
           ) AS task (position, task_id, key, name, agent, state, registered, output, execution_time, started_at, finished_at)
        ON CONFLICT (kickoff_id, position) DO UPDATE
       SET task_id = excluded.task_id, key = excluded.key, name = excluded.name, agent = excluded.agent, state = excluded.state,
           registered = excluded.registered, output = excluded.output, execution_time = excluded.execution_time,
           started_at = excluded.started_at, finished_at = excluded.finished_at, attempt = excluded.attempt
), journaled AS (
    INSERT INTO journal (kickoff_id, attempt, number, key, position, output_elsewhere, record)
    SELECT live.id, %(attempt)s, entry.number, entry.key, entry.position, entry.output_elsewhere, entry.record
      FROM live,
           unnest(%(numbers)b::int[], %(entry_keys)b::text[], %(entry_positions)b::int[], %(outputs_elsewhere)b::bool[], %(entries)b::text[])
             AS entry (number, key, position, output_elsewhere, record)
        ON CONFLICT DO NOTHING
), changed AS (
    UPDATE kickoffs
       SET waiting_for = %(waiting_for)s, warnings = added_warnings(warnings, %(warnings)s),
           token_usage = coalesce(%(token_usage)s::json, token_usage), model_calls = greatest(model_calls, %(model_calls)s),
           losses = CASE WHEN cardinality(%(numbers)b::int[]) > 0 THEN 0 ELSE losses END  -- a finished step resets the count of losses
      FROM live
     WHERE kickoffs.id = live.id
       AND (%(warnings)s::text <> '[]' OR %(token_usage)s::text IS NOT NULL OR waiting_for IS DISTINCT FROM %(waiting_for)s
            OR model_calls < %(model_calls)s OR (losses > 0 AND cardinality(%(numbers)b::int[]) > 0))
)
SELECT id,
       CASE WHEN cardinality(%(seqs)b::bigint[]) > 0 AND EXISTS (SELECT FROM streamed WHERE kickoff_id = live.id AND until > now())
            THEN pg_notify('windlass_events', id::text) END
  FROM live

-- name: stored_so_far
-- Adds up the stored, possibly compressed sizes. Reading the values would take long.
SELECT coalesce((SELECT max(seq) FROM events WHERE kickoff_id = %(kickoff)s), 0) AS seq,
       coalesce((SELECT sum(pg_column_size(payload)) FROM events WHERE kickoff_id = %(kickoff)s), 0)
       + coalesce((SELECT sum(pg_column_size(output)) FROM task_records WHERE kickoff_id = %(kickoff)s), 0)
       + coalesce((SELECT sum(pg_column_size(record)) FROM journal WHERE kickoff_id = %(kickoff)s), 0) AS bytes
