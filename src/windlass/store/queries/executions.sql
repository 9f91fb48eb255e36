-- name: head
SELECT kickoffs.id, slug, kickoffs.deployment_id, version_id, number AS version, shown_state(kickoffs) AS state, reason, error, attempt, users.name AS "user",
       kickoffs.created_at, started_at, finished_at, paused_time(kickoffs) AS paused_for, run_at, stop_requested_at IS NOT NULL AS stopping, started_by, stopped_by, priority, concurrency_key,
       limits::text AS limits, token_usage::text AS token_usage, model_calls, file_count, waiting_for,
       coalesce(tasks.total, 0) AS total_tasks, coalesce(tasks.completed, 0) AS completed_tasks, tasks.failed AS failed_task,
       (SELECT coalesce(max(seq), 0) FROM events WHERE kickoff_id = kickoffs.id) AS last_event,
       EXISTS (SELECT FROM webhooks WHERE kickoff_id = kickoffs.id) AS has_webhooks
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

-- name: own_webhooks
-- The webhooks of kickoffs at endpoints that are not those of their deployment today.
SELECT webhooks.kickoff_id AS kickoff, endpoint_id AS endpoint, host, hooks
  FROM webhooks
  JOIN webhook_endpoints ON webhook_endpoints.id = endpoint_id
  JOIN deployments ON deployments.id = webhook_endpoints.deployment_id
 WHERE webhooks.kickoff_id = ANY (%(ids)s::uuid[]) AND removed_at IS NULL
   AND NOT EXISTS (SELECT FROM json_each(deployments.webhooks) AS own WHERE own.value ->> 'endpoint' = endpoint_id::text)
 ORDER BY host

-- name: requests
-- What to start the kickoffs again with. Inputs of more than %(most)s bytes in their stored form are null.
SELECT kickoffs.id, slug, CASE WHEN pg_column_size(inputs) <= %(most)s THEN inputs::text END AS inputs,
       CASE WHEN pg_column_size(meta) <= %(most)s THEN meta::text END AS meta
  FROM kickoffs
  JOIN deployments ON deployments.id = deployment_id
 WHERE kickoffs.id = ANY (%(ids)s::uuid[]) AND removed_at IS NULL
 ORDER BY kickoffs.id
