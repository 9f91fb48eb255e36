-- name: listed
-- Returns one page of kickoffs as the pages for people list them, and in each row the edge of the search, as `listed` of
-- reading.sql does. `seen` and `page` begin with the newest or, in the other direction, with the oldest. The rows are newest first. Long inputs are cut, and large ones, whose whole text would have to be read, are left out. Only the rows of the page are joined with other tables.
WITH seen AS MATERIALIZED (
    SELECT id, deployment_id, version_id, user_id, state, created_at
      FROM kickoffs
     WHERE {which} AND id < %(before)s::uuid AND id > %(after)s::uuid
     ORDER BY id {direction}
     LIMIT %(most_read)s
), page AS (
    SELECT id
      FROM seen
     WHERE deployment_id IN (
           SELECT deployments.id FROM deployments
            WHERE removed_at IS NULL AND (%(part_of_slug)s::text IS NULL OR position(lower(%(part_of_slug)s::text) IN slug) > 0)
           )
       AND (%(states)s::text[] IS NULL OR state = ANY (%(states)s::text[]))
       AND (%(user)s::text IS NULL OR user_id = (SELECT users.id FROM users WHERE name = %(user)s::text))
       AND (%(version)s::int IS NULL OR version_id IN (SELECT versions.id FROM versions WHERE number = %(version)s::int))
       AND (%(since)s::timestamptz IS NULL OR created_at >= %(since)s::timestamptz)
       AND (%(ending)s::text IS NULL OR right(id::text, length(%(ending)s::text)) = %(ending)s::text)
     ORDER BY id {direction}
     LIMIT %(limit)s
)
SELECT found.id, found.state, found.reason, found.created_at, found.started_at, found.finished_at,
       found.stop_requested_at IS NOT NULL AS stopping, found.started_by, found.stopped_by, found.waiting_for, slug, number AS version, users.name AS "user",
       (found.token_usage ->> 'total_tokens')::bigint AS tokens,
       left(found.error, %(longest_error)s) AS error,
       CASE WHEN pg_column_size(found.inputs) <= %(largest_inputs)s THEN left(found.inputs::text, %(longest_inputs)s) END AS inputs,
       edge.last_seen, edge.seen < %(most_read)s AS all_seen
  FROM (SELECT (array_agg(id ORDER BY id {opposite}))[1] AS last_seen, count(*) AS seen FROM seen) AS edge
  LEFT JOIN page ON true
  LEFT JOIN kickoffs AS found ON found.id = page.id
  LEFT JOIN users ON users.id = found.user_id
  LEFT JOIN deployments ON deployments.id = found.deployment_id
  LEFT JOIN versions ON versions.id = found.version_id
 ORDER BY found.id DESC

-- name: slugs_with
-- The slugs with this text, that which is the text first. Two are enough to know whether it is one.
SELECT slug
  FROM deployments
 WHERE removed_at IS NULL AND position(lower(%(text)s::text) IN slug) > 0
 ORDER BY slug <> lower(%(text)s::text), slug
 LIMIT 2

-- name: of_all
true

-- name: of_one
deployment_id = (SELECT id FROM deployments WHERE slug = %(deployment)s::text AND removed_at IS NULL)

-- name: open
-- The parts fit the conditions of partial indexes, so that few open kickoffs are found among many ended ones.
((state = 'PENDING' AND ready) OR (state = 'PENDING' AND NOT ready) OR state = 'STARTED' OR state = 'PENDING_HUMAN_INPUT')

-- name: head
SELECT kickoffs.id, slug, kickoffs.deployment_id, version_id, number AS version, kickoffs.state, reason, error, attempt, users.name AS "user",
       kickoffs.created_at, started_at, finished_at, run_at, stop_requested_at IS NOT NULL AS stopping, started_by, stopped_by, priority, concurrency_key,
       limits::text AS limits, token_usage::text AS token_usage, model_calls, file_count, waiting_for,
       coalesce(tasks.total, 0) AS total_tasks, coalesce(tasks.completed, 0) AS completed_tasks, tasks.failed AS failed_task,
       (SELECT coalesce(max(seq), 0) FROM events WHERE kickoff_id = kickoffs.id) AS last_event
  FROM kickoffs
  JOIN deployments ON deployments.id = kickoffs.deployment_id
  LEFT JOIN versions ON versions.id = version_id
  LEFT JOIN users ON users.id = user_id
 CROSS JOIN LATERAL (
       SELECT count(*) AS total, count(*) FILTER (WHERE state = 'completed') AS completed,
              (array_agg(coalesce(name, task_id) ORDER BY state = 'failed' DESC, position) FILTER (WHERE state IN ('failed', 'running')))[1]
              AS failed
         FROM task_records
        WHERE kickoff_id = kickoffs.id
       ) AS tasks
 WHERE kickoffs.id = %(kickoff)s AND removed_at IS NULL

-- name: member
-- The beginning of a member as JSON text, and its whole size.
SELECT left(whole.text, %(most)s) AS beginning, octet_length(whole.text) AS bytes
  FROM (SELECT CASE %(member)s::text
                    WHEN 'inputs' THEN inputs::text
                    WHEN 'meta' THEN meta::text
                    WHEN 'warnings' THEN warnings::text
                    WHEN 'output' THEN output::text
                    WHEN 'structured' THEN structured::text
               END AS text
          FROM kickoffs
         WHERE id = %(kickoff)s
        OFFSET 0) AS whole
 WHERE whole.text IS NOT NULL

-- name: tasks
SELECT position, task_id, name, agent, state, attempt, started_at, finished_at, execution_time
  FROM task_records
 WHERE kickoff_id = %(kickoff)s
 ORDER BY position
 LIMIT %(limit)s

-- name: marks
-- The events that a timeline is made of. Of large payloads, only the beginning and the end are returned: their prompts and answers stand between.
SELECT seq, attempt, type, at, left(text, %(beginning)s) AS beginning,
       CASE WHEN length(text) > %(beginning)s THEN right(text, %(ending)s) END AS ending
  FROM (SELECT seq, attempt, type, at, payload::text AS text
          FROM events
         WHERE kickoff_id = %(kickoff)s AND seq > %(after)s AND type = ANY (%(types)s::text[])
         ORDER BY seq
         LIMIT %(limit)s
        OFFSET 0) AS next
 ORDER BY seq

-- name: events
SELECT seq, attempt, type, at, payload::text AS payload
  FROM events
 WHERE kickoff_id = %(kickoff)s AND seq = ANY (%(seqs)s::bigint[])
 ORDER BY seq

-- name: latest
-- The newest events of some types, before a number, newest first. A long payload is cut.
SELECT seq, attempt, type, at, left(text, %(most)s) AS payload, length(text) > %(most)s AS cut
  FROM (SELECT seq, attempt, type, at, payload::text AS text
          FROM events
         WHERE kickoff_id = %(kickoff)s AND seq < %(before)s AND type = ANY (%(types)s::text[])
         ORDER BY seq DESC
         LIMIT %(limit)s
        OFFSET 0) AS newest
 ORDER BY seq DESC

-- name: requests
-- What to start the kickoffs again with. Inputs of more than %(most)s bytes in their stored form are null.
SELECT kickoffs.id, slug, CASE WHEN pg_column_size(inputs) <= %(most)s THEN inputs::text END AS inputs,
       CASE WHEN pg_column_size(meta) <= %(most)s THEN meta::text END AS meta
  FROM kickoffs
  JOIN deployments ON deployments.id = deployment_id
 WHERE kickoffs.id = ANY (%(ids)s::uuid[]) AND removed_at IS NULL
 ORDER BY kickoffs.id
