-- name: statuses
-- Arbitrary JSON is returned as text, which is passed on unread. Requests of all tenants share one statement. Therefore a large status is
-- returned without such members: `omitted` names those that are not null, to be read by `large_member`, `large_tasks` and `large_outputs`. A
-- status is large if its members have a stored size of more than %(most_stored)s bytes, which is known without reading them, or more than
-- %(most)s bytes as text. row_to_json writes no spaces, unlike json_build_object, as the rest of the answer. ARRAY(SELECT unnest()):
-- PostgreSQL then keeps one plan for any number of ids; for ANY(%(ids)s) it plans each short list again.
SELECT kickoffs.id, deployment_id, version_id, user_id, shown_state(kickoffs) AS state, reason, error, attempt,
       CASE WHEN NOT judged.large THEN meta::text END AS meta,
       CASE WHEN NOT judged.large THEN warnings::text END AS warnings,
       CASE WHEN kickoffs.state = 'STARTED' AND stop_requested_at IS NOT NULL THEN 'end' ELSE waiting_for END AS waiting_for,
       CASE WHEN NOT judged.large THEN kickoffs.output::text END AS output,
       CASE WHEN NOT judged.large THEN structured::text END AS structured,
       token_usage::text, created_at, kickoffs.started_at, kickoffs.finished_at, paused_time(kickoffs) AS paused_for,
       CASE WHEN NOT judged.large THEN texts.human_input END AS human_input,
       CASE WHEN NOT judged.large THEN texts.tasks END AS tasks,
       records.total AS total_tasks, records.completed AS completed_tasks, records.current AS current_task,
       CASE WHEN NOT judged.large THEN texts.outputs END AS task_outputs,
       file_count, written.files,
       CASE WHEN judged.large
            THEN ARRAY[CASE WHEN meta IS NOT NULL THEN 'meta' END, CASE WHEN pg_column_size(warnings) > 8 THEN 'warnings' END,
                       CASE WHEN kickoffs.output IS NOT NULL THEN 'output' END, CASE WHEN structured IS NOT NULL THEN 'structured' END,
                       CASE WHEN records.total > 0 THEN 'tasks' END,
                       CASE WHEN kickoffs.state = 'SUCCESS' AND records.completed > 0 THEN 'task_outputs' END,
                       CASE WHEN draft.stored > 0 THEN 'human_input' END]
       END AS omitted
  FROM kickoffs
  LEFT JOIN LATERAL (
       SELECT count(*) AS total,
              count(*) FILTER (WHERE state = 'completed') AS completed,
              (array_agg(coalesce(name, task_id) ORDER BY position) FILTER (WHERE state IN ('running', 'pending_human_input')))[1] AS current,
              sum(256 + coalesce(pg_column_size(name), 0) + coalesce(pg_column_size(agent), 0)
                  + CASE WHEN kickoffs.state = 'SUCCESS' THEN coalesce(pg_column_size(output), 0) ELSE 0 END) AS stored
         FROM task_records
        WHERE kickoff_id = kickoffs.id
       ) AS records ON kickoffs.state <> 'PENDING'
 CROSS JOIN LATERAL (
       SELECT '[' || string_agg(row_to_json(first)::text, ',' ORDER BY path) || ']' AS files
         FROM (SELECT path, size, encode(sha256, 'hex') AS sha256, media_type FROM files WHERE kickoff_id = kickoffs.id AND file_count > 0 ORDER BY path LIMIT %(most_files)s) AS first
       ) AS written
 CROSS JOIN LATERAL (
       SELECT sum(pg_column_size(draft) + 1) AS stored
         FROM questions
        WHERE kickoffs.asked AND kickoff_id = kickoffs.id AND coalesce(answered_at, closed_at) IS NULL
       ) AS draft
 CROSS JOIN LATERAL (
       SELECT coalesce(records.stored, 0) + coalesce(draft.stored, 0) + pg_column_size(warnings) + coalesce(pg_column_size(meta), 0)
              + coalesce(pg_column_size(kickoffs.output), 0) + coalesce(pg_column_size(structured), 0) AS bytes
       ) AS stored
 CROSS JOIN LATERAL (
       SELECT '[' || string_agg((
                  SELECT row_to_json(task)::text
                    FROM (SELECT task_id, key, name, agent, state, NOT registered AS unregistered,
                                 to_char(started_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') AS started_at,
                                 to_char(finished_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') AS finished_at) AS task),
                  ',' ORDER BY position) || ']' AS tasks,
              '[' || string_agg((
                  SELECT row_to_json(task)::text FROM (SELECT task_id, name, output, agent, execution_time) AS task),
                  ',' ORDER BY position) FILTER (WHERE state = 'completed' AND kickoffs.state = 'SUCCESS') || ']' AS outputs,
              CASE WHEN draft.stored > 0 THEN human_input(kickoffs.id) END AS human_input
         FROM task_records
        WHERE kickoff_id = kickoffs.id AND kickoffs.state <> 'PENDING' AND stored.bytes <= %(most_stored)s
       ) AS texts
 CROSS JOIN LATERAL (
       SELECT CASE WHEN stored.bytes > %(most_stored)s THEN true
                   ELSE octet_length(warnings::text) + coalesce(octet_length(meta::text), 0) + coalesce(octet_length(kickoffs.output::text), 0)
                        + coalesce(octet_length(structured::text), 0) + coalesce(octet_length(texts.tasks), 0)
                        + coalesce(octet_length(texts.outputs), 0) + coalesce(octet_length(texts.human_input), 0) > %(most)s
              END AS large
       OFFSET 0
       ) AS judged
 WHERE kickoffs.id = ANY (ARRAY(SELECT unnest(%(ids)s::uuid[])))

-- name: details
-- What the profile `live` adds to a status. The types of steps are those of the webhook of steps.
SELECT started_by, user_id, now() AS read_at,
       coalesce((SELECT max(seq) FROM events WHERE kickoff_id = kickoffs.id), 0) AS events_count,
       (SELECT to_json(step)
          FROM (SELECT type, at, CASE WHEN octet_length(payload::text) <= %(most)s THEN payload END AS data
                  FROM events
                 WHERE kickoff_id = kickoffs.id AND type = ANY (%(steps)s)
                 ORDER BY seq DESC
                 LIMIT 1) AS step)::text AS last_step,
       (SELECT to_json(task)
          FROM (SELECT task_id, name, agent, started_at, finished_at
                  FROM task_records
                 WHERE kickoff_id = kickoffs.id AND state = 'completed'
                 ORDER BY finished_at DESC
                 LIMIT 1) AS task)::text AS last_task,
       (SELECT agent FROM task_records WHERE kickoff_id = kickoffs.id AND state IN ('running', 'pending_human_input') ORDER BY position LIMIT 1) AS current_agent,
       (SELECT max(greatest(started_at, finished_at)) FROM task_records WHERE kickoff_id = kickoffs.id) AS updated_at
  FROM kickoffs
 WHERE id = %(kickoff)s

-- name: one_moment
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ

-- name: in_order
-- Disables parallel plans, which could change the order of the pieces.
SET LOCAL max_parallel_workers_per_gather = 0

-- name: large_member
-- Returns pieces, one per row, so that neither side holds the whole text as one message. OFFSET 0: the text is made once, not for each
-- piece.
SELECT substring(whole.bytes FROM at FOR %(piece)s) AS piece
  FROM (SELECT convert_to(coalesce(
                 CASE %(member)s
                      WHEN 'meta' THEN meta::text
                      WHEN 'warnings' THEN warnings::text
                      WHEN 'output' THEN output::text
                      WHEN 'structured' THEN structured::text
                      WHEN 'human_input' THEN human_input(id)
                 END, 'null'), 'UTF8') AS bytes
          FROM kickoffs
         WHERE id = %(kickoff)s
        OFFSET 0) AS whole
 CROSS JOIN LATERAL generate_series(1, octet_length(whole.bytes), %(piece)s) AS at

-- name: large_tasks
SELECT substring(whole.bytes FROM at FOR %(piece)s) AS piece
  FROM (SELECT convert_to('[' || string_agg((
                   SELECT row_to_json(task)::text
                     FROM (SELECT task_id, key, name, agent, state, NOT registered AS unregistered,
                                  to_char(started_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') AS started_at,
                                  to_char(finished_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') AS finished_at) AS task),
                   ',' ORDER BY position) || ']', 'UTF8') AS bytes
          FROM task_records
         WHERE kickoff_id = %(kickoff)s
        OFFSET 0) AS whole
 CROSS JOIN LATERAL generate_series(1, octet_length(whole.bytes), %(piece)s) AS at

-- name: large_outputs
-- Returns the records one after the other: together, their text could exceed PostgreSQL's limit of 1 GB. Each record has three parts:
-- before its output, the output, and after it, in the format of `statuses`. The nested loops keep the order of the records; the caller
-- checks it by `place`.
SELECT record.position * 3 + part.place AS place, substring(part.bytes FROM at FOR %(piece)s) AS piece
  FROM (SELECT position, output, (SELECT row_to_json(part)::text FROM (SELECT task_id, name) AS part) AS head,
               (SELECT row_to_json(part)::text FROM (SELECT agent, execution_time) AS part) AS tail
          FROM task_records
         WHERE kickoff_id = %(kickoff)s AND state = 'completed'
         ORDER BY position
        OFFSET 0) AS record
 CROSS JOIN LATERAL (
       VALUES (0, convert_to(left(head, -1) || ',"output":', 'UTF8')),
              (1, convert_to(coalesce(output::text, 'null'), 'UTF8')),
              (2, convert_to(',' || substr(tail, 2), 'UTF8'))
       ) AS part (place, bytes)
 CROSS JOIN LATERAL generate_series(1, octet_length(part.bytes), %(piece)s) AS at

-- name: waiting
-- Returns the facts that `kickoffs.waiting` uses. `ahead` counts only the first %(most)s kickoffs of the same line: the queue of the crew,
-- or the kickoffs that wait for the same key. The holder of a key is returned only for PENDING kickoffs.
WITH asked AS (
    SELECT kickoffs.*, slug, deployments.paused_at IS NOT NULL AS paused, concurrency,
           waits_for_key(kickoffs) AS waits_for_key, shown_state(kickoffs) AS shown_state
      FROM kickoffs
      JOIN deployments ON deployments.id = kickoffs.deployment_id
     WHERE kickoffs.id = ANY (ARRAY(SELECT unnest(%(ids)s::uuid[])))
), runs AS MATERIALIZED (
    SELECT deployment_id, count(*) AS here FROM kickoffs WHERE state = 'STARTED' GROUP BY deployment_id
)
SELECT asked.id, asked.shown_state AS state, slug, paused, concurrency, run_at, losses, unstarted, retries, latest.ended_as, asked.why,
       asked.concurrency_key,
       CASE WHEN asked.state = 'STARTED' AND stop_requested_at IS NOT NULL THEN 'end' ELSE waiting_for END AS waiting_for,
       waits_for_key, holder.id AS holder, holder.user_id AS holder_user, holder.state AS holder_state,
       CASE WHEN waits_for_key THEN same_key.ahead ELSE queue.ahead END AS ahead,
       coalesce(runs.here, 0) AS running_here, (SELECT coalesce(sum(here), 0)::int FROM runs) AS running, alive.workers, alive.slots
  FROM asked
  LEFT JOIN attempts AS latest ON latest.kickoff_id = asked.id AND latest.attempt = asked.attempt
  LEFT JOIN runs ON runs.deployment_id = asked.deployment_id
 CROSS JOIN LATERAL (
       SELECT count(*) AS workers, coalesce(sum(slots), 0) AS slots
         FROM workers
        WHERE alive_until > now() AND (deployments IS NULL OR asked.slug = ANY (deployments)) AND asked.slug <> ALL (excluded)
       ) AS alive
 CROSS JOIN LATERAL (
       SELECT count(*) FILTER (WHERE (-priority, id) < (-asked.priority, asked.id)) AS ahead
         FROM (SELECT priority, id
                 FROM kickoffs
                WHERE deployment_id = asked.deployment_id AND state = 'PENDING' AND ready
                ORDER BY priority DESC, id
                LIMIT CASE WHEN asked.ready AND asked.state = 'PENDING' THEN %(most)s ELSE 0 END) AS head
       ) AS queue
 CROSS JOIN LATERAL (
       SELECT count(*) FILTER (WHERE (-priority, id) < (-asked.priority, asked.id)) AS ahead
         FROM (SELECT priority, id
                 FROM kickoffs
                WHERE deployment_id = asked.deployment_id AND concurrency_key = asked.concurrency_key AND waits_for_key(kickoffs)
                ORDER BY priority DESC, id
                LIMIT CASE WHEN waits_for_key THEN %(most)s ELSE 0 END) AS head
       ) AS same_key
  LEFT JOIN LATERAL (
       SELECT held.id, held.user_id, held.state
         FROM kickoffs AS held
        WHERE held.deployment_id = asked.deployment_id AND held.concurrency_key = asked.concurrency_key AND held.id <> asked.id
          AND holds_key(held)
        ORDER BY held.state = 'PENDING', held.id
        LIMIT 1
       ) AS holder ON asked.state = 'PENDING'

-- name: attempts
-- Returns the newest %(limit)s attempts, the oldest of them first. A task record names the attempt that ran the task last. So a completed
-- task of an earlier attempt came from the journal. A task that was reopened after a loss keeps its execution time.
WITH newest AS (
    SELECT * FROM attempts WHERE kickoff_id = %(kickoff)s ORDER BY attempt DESC LIMIT %(limit)s
)
SELECT newest.attempt, newest.started_at, host, restored, ended_at, ended_as, why, tasks.from_journal, tasks.ran
  FROM newest
 CROSS JOIN LATERAL (
       SELECT coalesce(array_agg(coalesce(name, task_id) ORDER BY position)
                       FILTER (WHERE restored > 0 AND state = 'completed' AND attempt < newest.attempt), '{}') AS from_journal,
              coalesce(array_agg(coalesce(name, task_id) ORDER BY position)
                       FILTER (WHERE attempt = newest.attempt AND (started_at IS NOT NULL OR execution_time IS NOT NULL)), '{}') AS ran
         FROM task_records
        WHERE kickoff_id = %(kickoff)s
       ) AS tasks
 ORDER BY newest.attempt

-- name: events_of_many
-- The next events of each kickoff after a number, as `events` returns them, with the kickoff's state. A kickoff without next events has one row
-- without an event.
SELECT wanted.place, shown_state(kickoffs) AS state, next.*
  FROM unnest(%(kickoffs)s::uuid[], %(afters)s::bigint[], %(with_hidden)s::bool[])
       WITH ORDINALITY AS wanted (kickoff_id, after, with_hidden, place)
  LEFT JOIN kickoffs ON kickoffs.id = wanted.kickoff_id
  LEFT JOIN LATERAL (
       SELECT seq, attempt, type, at, payload
         FROM (SELECT seq, attempt, type, at, payload::text AS payload, row_number() OVER in_order AS number,
                      sum(octet_length(payload::text)) OVER in_order AS bytes
                 FROM (SELECT *
                         FROM events
                        WHERE kickoff_id = wanted.kickoff_id AND seq > wanted.after
                              AND (with_hidden OR type <> ALL (%(hidden)s::text[]))
                        ORDER BY seq
                        LIMIT %(limit)s) AS first
               WINDOW in_order AS (ORDER BY seq)) AS summed
        WHERE number = 1 OR bytes <= %(most_bytes)s
       ) AS next ON true
 ORDER BY wanted.place, next.seq

-- name: note_streamed
-- The ids are sorted, so that two servers lock common rows in the same order. Rows of ended streams are removed.
WITH old AS (
    DELETE FROM streamed
     WHERE kickoff_id IN (SELECT kickoff_id FROM streamed WHERE until < now() - interval '1 minute' LIMIT 1000 FOR UPDATE SKIP LOCKED)
)
INSERT INTO streamed (kickoff_id, until)
SELECT id, now() + %(keep)s FROM unnest(%(ids)s::uuid[]) AS id
    ON CONFLICT (kickoff_id) DO UPDATE SET until = greatest(streamed.until, excluded.until)

-- name: events
-- Returns a page of events whose payloads have %(most_bytes)s bytes at most, but at least one event. `more` is whether the kickoff has later
-- events. Payloads are returned as text, which is passed on unread.
SELECT seq, attempt, type, at, payload, place < found AS more
  FROM (SELECT seq, attempt, type, at, payload::text AS payload, count(*) OVER () AS found,
               row_number() OVER in_order AS place, sum(octet_length(payload::text)) OVER in_order AS bytes
          FROM (SELECT *
                  FROM events
                 WHERE kickoff_id = %(kickoff)s AND seq > %(after)s AND type <> ALL (%(hidden)s::text[])
                 ORDER BY seq
                 LIMIT %(limit)s + 1) AS next
        WINDOW in_order AS (ORDER BY seq)) AS next
 WHERE place = 1 OR (place <= %(limit)s AND bytes <= %(most_bytes)s)
 ORDER BY seq
