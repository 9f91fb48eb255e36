-- name: statuses
-- What holds any JSON comes as text, to be passed on unread.
SELECT kickoffs.id, deployment_id, version_id, user_id, kickoffs.state, reason, error, attempt, meta::text, warnings::text,
       CASE WHEN kickoffs.state = 'STARTED' AND stop_requested_at IS NOT NULL THEN 'end' ELSE waiting_for END AS waiting_for,
       kickoffs.output::text, structured::text, token_usage::text, created_at, kickoffs.started_at, kickoffs.finished_at,
       records.tasks, records.total AS total_tasks, records.completed AS completed_tasks, records.current AS current_task,
       CASE kickoffs.state WHEN 'SUCCESS' THEN outputs.tasks END AS task_outputs
  FROM kickoffs
  LEFT JOIN LATERAL (
       SELECT json_agg(json_build_object(
                       'task_id', task_id, 'key', key, 'name', name, 'agent', agent, 'state', state, 'unregistered', NOT registered,
                       'started_at', to_char(started_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
                       'finished_at', to_char(finished_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))
                       ORDER BY position)::text AS tasks,
              count(*) AS total,
              count(*) FILTER (WHERE state = 'completed') AS completed,
              (array_agg(coalesce(name, task_id) ORDER BY position) FILTER (WHERE state = 'running'))[1] AS current
         FROM task_records
        WHERE kickoff_id = kickoffs.id
       ) AS records ON kickoffs.state <> 'PENDING'
  LEFT JOIN LATERAL (
       SELECT json_agg(json_build_object(
                       'task_id', task_id, 'name', name, 'output', output, 'agent', agent, 'execution_time', execution_time)
                       ORDER BY position)::text AS tasks
         FROM task_records
        WHERE kickoff_id = kickoffs.id AND state = 'completed'
       ) AS outputs ON kickoffs.state = 'SUCCESS'
 WHERE kickoffs.id = ANY (%(ids)s)

-- name: waiting
-- All that `kickoffs.waiting` decides by. A place is counted among the first that wait for the same (`most` of them): in the queue of the
-- crew, or for the same key. Whoever holds the key is told only to the one that waits for it.
WITH asked AS (
    SELECT kickoffs.*, slug, paused_at, concurrency,
           state = 'PENDING' AND NOT ready AND run_at IS NULL AND concurrency_key IS NOT NULL AS waits_for_key
      FROM kickoffs
      JOIN deployments ON deployments.id = kickoffs.deployment_id
     WHERE kickoffs.id = ANY (%(ids)s)
), runs AS MATERIALIZED (
    SELECT deployment_id, count(*) AS here FROM kickoffs WHERE state = 'STARTED' GROUP BY deployment_id
)
SELECT asked.id, asked.state, slug, paused_at IS NOT NULL AS paused, concurrency, run_at, losses, retries, latest.ended_as, asked.why,
       asked.concurrency_key,
       CASE WHEN asked.state = 'STARTED' AND stop_requested_at IS NOT NULL THEN 'end' ELSE waiting_for END AS waiting_for,
       waits_for_key, holder.id AS holder, holder.user_id AS holder_user, holder.state AS holder_state,
       CASE WHEN waits_for_key THEN same_key.ahead ELSE queue.ahead END AS ahead,
       coalesce(runs.here, 0) AS running_here, (SELECT coalesce(sum(here), 0)::int FROM runs) AS running, alive.workers, alive.slots
  FROM asked
  LEFT JOIN attempts AS latest ON latest.kickoff_id = asked.id AND latest.attempt = asked.attempt
  LEFT JOIN runs ON runs.deployment_id = asked.deployment_id
 CROSS JOIN (SELECT count(*) AS workers, coalesce(sum(slots), 0) AS slots FROM workers WHERE alive_until > now()) AS alive
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
                WHERE deployment_id = asked.deployment_id AND concurrency_key = asked.concurrency_key
                  AND state = 'PENDING' AND NOT ready AND run_at IS NULL
                ORDER BY priority DESC, id
                LIMIT CASE WHEN waits_for_key THEN %(most)s ELSE 0 END) AS head
       ) AS same_key
  LEFT JOIN LATERAL (
       SELECT held.id, held.user_id, held.state
         FROM kickoffs AS held
        WHERE held.deployment_id = asked.deployment_id AND held.concurrency_key = asked.concurrency_key AND held.id <> asked.id
          AND (held.state = 'STARTED' OR held.state = 'PENDING_HUMAN_INPUT' OR (held.state = 'PENDING' AND held.ready))
        ORDER BY held.state = 'PENDING', held.id
        LIMIT 1
       ) AS holder ON asked.state = 'PENDING'

-- name: attempts
-- The newest %(limit)s, the oldest of them first. A task record names the attempt that ran it last: what is completed and an earlier one's was
-- there already. One that is open again since its run was lost keeps the seconds that it took.
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
