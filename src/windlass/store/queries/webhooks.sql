-- name: begin
-- Other jobs of the endpoint that are due would find nothing to do.
WITH others AS (
    DELETE FROM procrastinate_jobs
     WHERE lock = 'webhooks ' || %(endpoint)s::uuid AND status = 'todo' AND (scheduled_at IS NULL OR scheduled_at <= now())
)
SELECT endpoint.id, endpoint.deployment_id, address, failures, disabled_at IS NOT NULL AS disabled,
       extract(epoch FROM paused_until - now())::float8 AS paused, deployments.slug, deployments.webhook_secrets AS secrets,
       coalesce(deployments.webhooks #>> '{human_input,endpoint}' = endpoint.id::text, false) AS asks,
       coalesce(deployments.settings -> 'approvers', '[]') AS approvers
  FROM webhook_endpoints AS endpoint
  JOIN deployments ON deployments.id = endpoint.deployment_id
 WHERE endpoint.id = %(endpoint)s

-- name: drop_later_jobs
DELETE FROM procrastinate_jobs WHERE lock = 'webhooks ' || %(endpoint)s::uuid AND status = 'todo' AND scheduled_at IS NOT NULL

-- name: defer_next
-- While the endpoint is paused, one delivery is tried at the end of the pause, whenever it is due.
SELECT defer_delivery(%(endpoint)s, greatest(paused_until, CASE WHEN failures < %(probing)s OR paused_until IS NULL THEN next END))
  FROM webhook_endpoints,
       (SELECT min(due_at) AS next FROM webhooks WHERE endpoint_id = %(endpoint)s AND due_at IS NOT NULL) AS first
 WHERE id = %(endpoint)s AND next IS NOT NULL

-- name: due
SELECT kickoff_id
  FROM webhooks
 WHERE endpoint_id = %(endpoint)s AND due_at IS NOT NULL AND (due_at <= now() OR %(probe)s) AND kickoff_id <> ALL (%(busy)s)
 ORDER BY due_at
 LIMIT 1

-- name: lock
-- The lock makes the writer of an event wait, or waits for it.
SELECT hooks, planned_seq, end_planned FROM webhooks WHERE kickoff_id = %(kickoff)s AND endpoint_id = %(endpoint)s FOR NO KEY UPDATE

-- name: unplanned
-- The sizes limit the batches.
SELECT kickoffs.state, next.seqs, next.types, next.sizes
  FROM kickoffs
  LEFT JOIN LATERAL (
       SELECT array_agg(seq ORDER BY seq) AS seqs, array_agg(type ORDER BY seq) AS types, array_agg(octet_length(payload::text) ORDER BY seq) AS sizes
         FROM (SELECT seq, type, payload
                 FROM events
                WHERE kickoff_id = %(kickoff)s AND seq > %(after)s
                ORDER BY seq
                LIMIT %(limit)s) AS following
       ) AS next ON %(with_events)s
 WHERE kickoffs.id = %(kickoff)s

-- name: plan
INSERT INTO deliveries (id, deployment_id, kickoff_id, endpoint_id, hook, first_seq, last_seq, types)
SELECT id, %(deployment)s, %(kickoff)s, %(endpoint)s, hook, first_seq, last_seq, CASE hook WHEN 'events' THEN %(types)s::text[] END
  FROM unnest(%(ids)s::uuid[], %(hooks)s::text[], %(firsts)s::bigint[], %(lasts)s::bigint[]) AS planned (id, hook, first_seq, last_seq)

-- name: note_planned
UPDATE webhooks SET planned_seq = %(seq)s, end_planned = %(end)s WHERE kickoff_id = %(kickoff)s AND endpoint_id = %(endpoint)s

-- name: waiting
SELECT id, hook, first_seq, last_seq, types, tries, coalesce(next_at <= now(), true) AS counts
  FROM deliveries
 WHERE endpoint_id = %(endpoint)s AND kickoff_id = %(kickoff)s AND state = 'waiting'
 ORDER BY last_seq NULLS LAST, id
 LIMIT %(limit)s

-- name: nothing_due
UPDATE webhooks SET due_at = NULL WHERE kickoff_id = %(kickoff)s AND endpoint_id = %(endpoint)s

-- name: ended
SELECT kickoffs.state, reason, error, output::text AS output, structured::text AS structured, token_usage::text AS token_usage, meta::text AS meta
  FROM kickoffs
 WHERE kickoffs.id = %(kickoff)s

-- name: events
SELECT seq, type, at, payload::text AS payload
  FROM events
 WHERE kickoff_id = %(kickoff)s AND seq BETWEEN %(first)s AND %(last)s
 ORDER BY seq

-- name: meta
SELECT meta::text AS meta FROM kickoffs WHERE id = %(kickoff)s

-- name: recent
-- The newest events of these types before another one: what led to it.
SELECT seq, type, at, payload::text AS payload
  FROM events
 WHERE kickoff_id = %(kickoff)s AND seq < %(seq)s AND seq > %(seq)s - 200 AND type = ANY (%(types)s)
 ORDER BY seq DESC
 LIMIT 20

-- name: whole_output
-- The output of the task that ended next to this time. Events have only the beginning of a long one.
SELECT output::text AS output
  FROM task_records
 WHERE kickoff_id = %(kickoff)s AND state = 'completed'
 ORDER BY abs(extract(epoch FROM finished_at - %(at)s))
 LIMIT 1

-- name: attempted
-- Keeps the newest attempts.
UPDATE deliveries
   SET state = %(state)s, tries = tries + (%(pause)s::interval IS NOT NULL)::int, next_at = coalesce(now() + %(pause)s::interval, next_at),
       finished_at = CASE WHEN %(state)s <> 'waiting' THEN now() END,
       attempts = (SELECT json_agg(attempt ORDER BY place)
                     FROM (SELECT attempt, place
                             FROM json_array_elements((attempts::jsonb || %(attempt)s::jsonb)::json) WITH ORDINALITY AS one (attempt, place)
                            ORDER BY place DESC
                            LIMIT %(most)s) AS newest)
 WHERE id = %(delivery)s

-- name: retry_at
UPDATE webhooks SET due_at = (SELECT next_at FROM deliveries WHERE id = %(delivery)s)
 WHERE kickoff_id = %(kickoff)s AND endpoint_id = %(endpoint)s

-- name: answered
-- After a failure, all that waits at the endpoint is tried at once.
WITH back AS (
    UPDATE webhook_endpoints SET failures = 0, paused_until = NULL WHERE id = %(endpoint)s AND (failures > 0 OR paused_until IS NOT NULL)
    RETURNING id
)
UPDATE webhooks SET due_at = now() WHERE endpoint_id IN (SELECT id FROM back) AND due_at > now()

-- name: failing
UPDATE webhook_endpoints
   SET failures = failures + 1,
       paused_until = CASE WHEN failures + 1 >= %(probing)s OR %(wait)s::float8 IS NOT NULL
                           THEN now() + greatest(coalesce(%(wait)s::float8, 0), CASE WHEN failures + 1 < %(probing)s THEN 0 WHEN failures < %(patient)s THEN %(soon)s ELSE %(late)s END)
                                        * interval '1 second' END
 WHERE id = %(endpoint)s
RETURNING paused_until IS NOT NULL AS paused

-- name: disable
UPDATE webhook_endpoints SET disabled_at = now(), paused_until = NULL, failures = 0 WHERE id = %(endpoint)s

-- name: warn
UPDATE kickoffs SET warnings = added_warnings(warnings, %(warnings)s)
 WHERE id = %(kickoff)s AND NOT warnings::jsonb @> '[{"code": "webhook_failed"}]'

-- name: fail_waiting
WITH over AS (
    UPDATE deliveries SET state = 'failed', finished_at = now() WHERE endpoint_id = %(endpoint)s AND kickoff_id = %(kickoff)s AND state = 'waiting'
)
UPDATE webhooks SET due_at = NULL WHERE endpoint_id = %(endpoint)s AND kickoff_id = %(kickoff)s

-- name: set_secrets
UPDATE deployments SET webhook_secrets = %(secrets)s WHERE id = %(deployment)s AND webhook_secrets IS NOT DISTINCT FROM %(before)s
RETURNING id

-- name: secrets
SELECT id, webhook_secrets AS secrets FROM deployments WHERE slug = %(slug)s AND removed_at IS NULL

-- name: of_deployment
SELECT id, webhooks FROM deployments WHERE slug = %(slug)s AND removed_at IS NULL FOR NO KEY UPDATE

-- name: webhooks_of
SELECT webhooks FROM deployments WHERE slug = %(slug)s AND removed_at IS NULL

-- name: set_of_deployment
UPDATE deployments SET webhooks = %(webhooks)s::json WHERE id = %(deployment)s
RETURNING pg_notify('windlass_deployments', slug)

-- name: add_endpoint
INSERT INTO webhook_endpoints (id, deployment_id, host, address)
VALUES (%(id)s, %(deployment)s, %(host)s, %(address)s)
    ON CONFLICT (id) DO NOTHING

-- name: switch_on
UPDATE webhook_endpoints SET disabled_at = NULL WHERE id = %(id)s AND disabled_at IS NOT NULL

-- name: endpoints
SELECT id, host, address, failures, paused_until, disabled_at FROM webhook_endpoints WHERE id = ANY (%(ids)s)

-- name: list
-- One page, newest first, and in each row the edge of the search: `last_seen`, and whether all deliveries were seen. A search reads at most
-- %(most_read)s rows, so a rare state can't make it read the whole table.
WITH seen AS MATERIALIZED (
    SELECT id, deployment_id, state
      FROM deliveries
     WHERE {which} AND id < %(before)s::uuid
     ORDER BY id DESC
     LIMIT %(most_read)s
), page AS (
    SELECT id
      FROM seen
     WHERE deployment_id IN (SELECT deployments.id FROM deployments WHERE removed_at IS NULL AND is_visible(deployments, %(sees)s::uuid))
       AND (%(state)s::text IS NULL OR state = %(state)s::text)
     ORDER BY id DESC
     LIMIT %(limit)s
)
SELECT found.id, found.kickoff_id, hook, host, found.state, attempts, found.created_at, found.finished_at, deployments.slug AS deployment,
       CASE WHEN found.state = 'waiting' THEN greatest(webhooks.due_at, paused_until) END AS next_at,
       coalesce(failures, 0) AS failures, paused_until, disabled_at, edge.last_seen, edge.seen < %(most_read)s AS all_seen
  FROM (SELECT (array_agg(id ORDER BY id))[1] AS last_seen, count(*) AS seen FROM seen) AS edge
  LEFT JOIN page ON true
  LEFT JOIN deliveries AS found ON found.id = page.id
  LEFT JOIN deployments ON deployments.id = found.deployment_id
  LEFT JOIN webhook_endpoints AS endpoint ON endpoint.id = found.endpoint_id
  LEFT JOIN webhooks ON webhooks.kickoff_id = found.kickoff_id AND webhooks.endpoint_id = found.endpoint_id
 ORDER BY found.id DESC

-- name: which_all
true

-- name: which_deployment
deployment_id = %(deployment)s::uuid

-- name: which_kickoff
kickoff_id = %(kickoff)s::uuid

-- name: which_one
id = %(only)s::uuid

-- name: redeliver
-- Puts an ended delivery back, also if its endpoint was switched off.
WITH again AS (
    UPDATE deliveries SET state = 'waiting', tries = 0, next_at = NULL, finished_at = NULL WHERE id = %(delivery)s
    RETURNING kickoff_id, endpoint_id
), enabled AS (
    UPDATE webhook_endpoints SET disabled_at = NULL, paused_until = NULL, failures = 0 WHERE id IN (SELECT endpoint_id FROM again)
), due AS (
    UPDATE webhooks SET due_at = now() WHERE (kickoff_id, endpoint_id) IN (SELECT kickoff_id, endpoint_id FROM again)
)
SELECT kickoff_id, endpoint_id, defer_delivery(endpoint_id, NULL) FROM again

-- name: enable
-- The endpoint has accepted a request: all that waits there is tried at once.
WITH enabled AS (
    UPDATE webhook_endpoints SET disabled_at = NULL, paused_until = NULL, failures = 0
     WHERE id = %(endpoint)s AND (disabled_at IS NOT NULL OR paused_until IS NOT NULL OR failures > 0)
    RETURNING id
), due AS (
    UPDATE webhooks SET due_at = now() WHERE endpoint_id IN (SELECT id FROM enabled) AND due_at > now()
)
SELECT defer_delivery(id, NULL) FROM enabled

-- name: of_kickoff
SELECT endpoint_id, hooks, planned_seq FROM webhooks WHERE kickoff_id = %(kickoff)s ORDER BY endpoint_id FOR NO KEY UPDATE

-- name: replace
-- A new endpoint gets what happens from now on, or from the event `after` on.
INSERT INTO webhooks (kickoff_id, endpoint_id, hooks, types, planned_seq)
SELECT %(kickoff)s, endpoint, hooks::json, string_to_array(types, ','),
       coalesce(after, (SELECT max(seq) FROM events WHERE kickoff_id = %(kickoff)s), 0)
  FROM unnest(%(hook_endpoints)s::uuid[], %(hooks)s::text[], %(hook_types)s::text[], %(afters)s::bigint[]) AS webhook (endpoint, hooks, types, after)
    ON CONFLICT (kickoff_id, endpoint_id) DO UPDATE SET hooks = excluded.hooks, types = excluded.types

-- name: remove_unused_endpoints
DELETE FROM webhook_endpoints AS endpoint
 WHERE created_at < now() - interval '1 day'
   AND NOT EXISTS (SELECT FROM webhooks WHERE endpoint_id = endpoint.id)
   AND NOT EXISTS (SELECT FROM deliveries WHERE endpoint_id = endpoint.id)
   AND NOT EXISTS (SELECT FROM deployments WHERE removed_at IS NULL AND webhooks::text LIKE '%%' || endpoint.id || '%%')

-- name: remind
-- Sets the times of the next reminders, and returns the webhooks that are called again. One that was not called yet, or is off, is left out.
-- The reminders of a question end after %(most)s times `remind_every`, since each is stored, and a question may wait for ever.
WITH due AS (
    UPDATE questions
       SET remind_at = CASE WHEN now() + remind_every <= asked_at + %(most)s * remind_every THEN now() + remind_every END
     WHERE id IN (SELECT id
                    FROM questions
                   WHERE answered_at IS NULL AND closed_at IS NULL AND remind_at <= now()
                   ORDER BY remind_at
                   LIMIT %(limit)s
                     FOR NO KEY UPDATE SKIP LOCKED)
    RETURNING id, kickoff_id, deployment_id
)
SELECT due.kickoff_id, due.deployment_id, endpoint_id, asked.seq
  FROM due
 CROSS JOIN LATERAL (
       SELECT max(seq) AS seq
         FROM events
        WHERE events.kickoff_id = due.kickoff_id AND type = 'human_input_requested' AND payload ->> 'task_id' = due.id::text
       ) AS asked
  JOIN webhooks ON webhooks.kickoff_id = due.kickoff_id AND hooks::jsonb ? 'human_input' AND planned_seq >= asked.seq
  JOIN webhook_endpoints AS endpoint ON endpoint.id = endpoint_id AND disabled_at IS NULL
 WHERE NOT EXISTS (
       SELECT
         FROM deliveries
        WHERE deliveries.kickoff_id = due.kickoff_id AND deliveries.endpoint_id = webhooks.endpoint_id AND state = 'waiting'
          AND hook = 'human_input' AND last_seq = asked.seq)

-- name: send_now
WITH due AS (
    UPDATE webhooks SET due_at = now() WHERE kickoff_id = %(kickoff)s AND endpoint_id = %(endpoint)s
    RETURNING endpoint_id
)
SELECT defer_delivery(endpoint_id, NULL) FROM due

-- name: pause
UPDATE webhook_endpoints SET paused_until = now() + %(pause)s WHERE id = %(endpoint)s

-- name: defer_forgotten
SELECT defer_delivery(endpoint_id, NULL)
  FROM (SELECT DISTINCT endpoint_id FROM webhooks WHERE due_at < now() - interval '1 minute') AS due
 WHERE NOT EXISTS (SELECT FROM procrastinate_jobs WHERE lock = 'webhooks ' || endpoint_id AND status IN ('todo', 'doing'))

-- name: postpone
SELECT defer_delivery(%(endpoint)s, now() + %(pause)s)
