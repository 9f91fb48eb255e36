-- See docs/decisions/queue.md#reports-and-endings-exclude-each-other

-- Arrays are sent in binary form, %(...)b: in text form, quoting an output of 20 MB keeps the server busy for seconds.

-- name: reports
-- The other parts of the statement read `live`, so they write nothing when the kickoff has gone on to another attempt. The caller must then
-- end its run. A part without rows is left out: PostgreSQL would prepare each part for each execution.
WITH live AS (
    {live}
){events}{records}{entries}{questions}
SELECT live.*{asks}{notified} FROM live

-- name: unchanged
SELECT id FROM kickoffs WHERE id = %(kickoff)s AND attempt = %(attempt)s AND state = 'STARTED' FOR SHARE

-- name: changed
UPDATE kickoffs
   SET waiting_for = %(waiting_for)s,
       paused_for = CASE WHEN %(waiting_for)s::text IS DISTINCT FROM 'human' THEN paused_time(kickoffs) ELSE paused_for END,
       paused_at = CASE WHEN %(waiting_for)s::text = 'human' THEN coalesce(paused_at, now()) END, token_usage = coalesce(%(token_usage)s::json, token_usage),
       model_calls = greatest(model_calls, %(model_calls)s), process_started = process_started OR %(process_started)s,
       unstarted = CASE WHEN %(process_started)s THEN 0 ELSE unstarted END{losses}{asked}{warnings}
 WHERE id = %(kickoff)s AND attempt = %(attempt)s AND state = 'STARTED'
RETURNING id

-- name: settled
-- The trigger follow_kickoff applies the consequences at the end of the statement, when the last reports are written. A stop request writes
-- its message to `error` at once. A kickoff that was asked to stop ends as CANCELLED with that message, however its run ended, because the
-- answer to the request has promised so. A result that the run had by then is kept in `output`.
UPDATE kickoffs
   SET state = CASE WHEN stop_requested_at IS NULL THEN %(state)s ELSE 'CANCELLED' END,
       reason = CASE WHEN stop_requested_at IS NULL THEN %(reason)s ELSE 'cancelled' END,
       error = CASE WHEN stop_requested_at IS NULL THEN %(error)s ELSE coalesce(error, %(error)s) END,
       output = {output}, structured = %(structured)s::json, token_usage = %(token_usage)s::json,
       model_calls = greatest(model_calls, %(model_calls)s), finished_at = now(), worker_id = NULL, lease_until = NULL,
       waiting_for = NULL{warnings}
 WHERE id = %(kickoff)s AND attempt = %(attempt)s AND state = 'STARTED'
RETURNING id, state

-- name: own_output
%(output)s::json

-- name: output_of_task
(SELECT output FROM task_records WHERE kickoff_id = %(kickoff)s AND position = %(output_of)s)

-- name: paused
-- The run waits for a person, and its process has ended. A kickoff that was asked to stop is not paused: it ends.
UPDATE kickoffs
   SET state = CASE WHEN stop_requested_at IS NULL THEN 'PENDING_HUMAN_INPUT' ELSE 'CANCELLED' END,
       reason = CASE WHEN stop_requested_at IS NOT NULL THEN 'cancelled' END,
       finished_at = CASE WHEN stop_requested_at IS NOT NULL THEN now() END,
       token_usage = %(token_usage)s::json, model_calls = greatest(model_calls, %(model_calls)s), paused_at = coalesce(paused_at, now()), why = NULL,
       losses = 0, unstarted = 0, worker_id = NULL, lease_until = NULL, waiting_for = NULL{asked}{warnings}
 WHERE id = %(kickoff)s AND attempt = %(attempt)s AND state = 'STARTED'
RETURNING id, state

-- name: has_asked
, asked = true

-- name: warnings
, warnings = added_warnings(warnings, %(warnings)s)

-- name: finished_step
-- A finished step resets the count of losses.
, losses = 0

-- name: events
-- ON CONFLICT, also in `entries`: the answer to the first write was lost, and it is repeated.
, stored AS (
    INSERT INTO events (kickoff_id, attempt, seq, type, at, payload)
    SELECT live.id, %(attempt)s, event.seq, event.type, to_timestamp(event.at), event.payload::json
      FROM live,
           unnest(%(seqs)b::bigint[], %(types)b::text[], %(ats)b::float8[], %(payloads)b::text[]) AS event (seq, type, at, payload)
        ON CONFLICT DO NOTHING
)

-- name: records
, moved AS (
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
)

-- name: entries
, journaled AS (
    INSERT INTO journal (kickoff_id, attempt, number, key, position, output_elsewhere, record)
    SELECT live.id, %(attempt)s, entry.number, entry.key, entry.position, entry.output_elsewhere, entry.record
      FROM live,
           unnest(%(numbers)b::int[], %(entry_keys)b::text[], %(entry_positions)b::int[], %(outputs_elsewhere)b::bool[], %(entries)b::text[])
             AS entry (number, key, position, output_elsewhere, record)
        ON CONFLICT DO NOTHING
)

-- name: questions
-- A conflict: the answer to the first write was lost, or a later attempt asks again what an interrupted one has asked, which may be answered by
-- now. All other questions that earlier attempts have asked, and that nobody has answered, are closed.
, asked AS (
    INSERT INTO questions (id, kickoff_id, deployment_id, attempt, number, key, position, method, question, draft, choices, waits, expires_at,
                           on_timeout, remind_every, remind_at)
    SELECT question.id::uuid, live.id, %(deployment)s, %(attempt)s, question.number, question.key, question.position, question.method, question.text,
           question.draft::json, question.choices::json, question.waits, now() + question.seconds * interval '1 second', question.on_timeout,
           question.reminder * interval '1 second', now() + question.reminder * interval '1 second'
      FROM live,
           unnest(%(question_ids)b::text[], %(question_numbers)b::int[], %(question_keys)b::text[], %(question_positions)b::int[], %(methods)b::text[],
                  %(questions)b::text[], %(drafts)b::text[], %(choices)b::text[], %(waits)b::bool[], %(expiries)b::float8[],
                  %(on_timeouts)b::text[], %(reminders)b::float8[]
           ) AS question (id, number, key, position, method, text, draft, choices, waits, seconds, on_timeout, reminder)
        ON CONFLICT (kickoff_id, key) DO UPDATE SET number = excluded.number, attempt = excluded.attempt, closed_at = NULL
), withdrawn AS (
    UPDATE questions
       SET closed_at = now()
      FROM live
     WHERE kickoff_id = live.id AND attempt < %(attempt)s AND coalesce(answered_at, closed_at) IS NULL
       AND key <> ALL (%(question_keys)b::text[])
)

-- name: asks
, pg_notify('windlass_ended', id::text)

-- name: notified
, CASE WHEN EXISTS (SELECT FROM streamed WHERE kickoff_id = live.id AND until > now()) THEN pg_notify('windlass_events', id::text) END,
  wake_webhooks(id, %(types)b::text[])

-- name: stored_so_far
-- Adds up the stored, possibly compressed sizes. Reading the values would take long.
SELECT coalesce((SELECT max(seq) FROM events WHERE kickoff_id = %(kickoff)s), 0) AS seq,
       coalesce((SELECT sum(pg_column_size(payload)) FROM events WHERE kickoff_id = %(kickoff)s), 0)
       + coalesce((SELECT sum(pg_column_size(output)) FROM task_records WHERE kickoff_id = %(kickoff)s), 0)
       + coalesce((SELECT sum(pg_column_size(record)) FROM journal WHERE kickoff_id = %(kickoff)s), 0)
       + coalesce((SELECT sum(pg_column_size(draft)) FROM questions WHERE kickoff_id = %(kickoff)s), 0) AS bytes,
       (SELECT count(*) FROM events WHERE kickoff_id = %(kickoff)s AND right(type, 6) = '_chunk') AS chunks
