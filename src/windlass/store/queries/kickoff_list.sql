-- name: listed
-- Returns one page of kickoffs, newest first, and in each row the edge of the search: `last_seen`, and whether all kickoffs were seen. A search
-- reads at most %(most_read)s rows, so a rare state or user can't make it read the whole table. Then the page may be short, and the next
-- page begins after `last_seen`. `seen` and `page` begin with the newest or, in the other direction, with the oldest. Only the rows of the
-- page are joined with other tables. With `preview`, errors and inputs are cut, and large inputs, whose whole text would have to be read, are
-- left out. Without it, no inputs are read.
WITH seen AS MATERIALIZED (
    SELECT id, deployment_id, version_id, user_id, shown_state(kickoffs) AS state, created_at
      FROM kickoffs
     WHERE {which} AND id < %(before)s::uuid AND id > %(after)s::uuid
     ORDER BY id {direction}
     LIMIT %(most_read)s
), page AS (
    SELECT id
      FROM seen
     WHERE deployment_id IN (
           SELECT deployments.id FROM deployments
            WHERE removed_at IS NULL AND is_visible(deployments, %(sees)s::uuid)
              AND (%(part_of_slug)s::text IS NULL OR position(lower(%(part_of_slug)s::text) IN slug) > 0)
           )
       AND (%(states)s::text[] IS NULL OR state = ANY (%(states)s::text[]))
       AND (%(owner)s::uuid IS NULL OR user_id = %(owner)s::uuid)
       AND (%(user)s::text IS NULL OR user_id = (SELECT users.id FROM users WHERE name = %(user)s::text))
       AND (%(version)s::int IS NULL OR version_id IN (SELECT versions.id FROM versions WHERE number = %(version)s::int))
       AND (%(since)s::timestamptz IS NULL OR created_at >= %(since)s::timestamptz)
       AND (%(until)s::timestamptz IS NULL OR created_at < %(until)s::timestamptz)
       AND (%(ending)s::text IS NULL OR right(id::text, length(%(ending)s::text)) = %(ending)s::text)
     ORDER BY id {direction}
     LIMIT %(limit)s
)
SELECT found.id, slug, number AS version, users.name AS "user", shown_state(found) AS state, found.reason, found.attempt,
       CASE WHEN %(preview)s THEN left(found.error, %(longest_error)s) ELSE found.error END AS error,
       found.stop_requested_at IS NOT NULL AS stopping, found.started_by, found.stopped_by, found.waiting_for,
       (found.token_usage ->> 'total_tokens')::bigint AS tokens,
       CASE WHEN %(preview)s AND pg_column_size(found.inputs) <= %(largest_inputs)s THEN left(found.inputs::text, %(longest_inputs)s) END
       AS inputs,
       found.created_at, found.started_at, found.finished_at, paused_time(found) AS paused_for, edge.last_seen, edge.seen < %(most_read)s AS all_seen
  FROM (SELECT (array_agg(id ORDER BY id {opposite}))[1] AS last_seen, count(*) AS seen FROM seen) AS edge
  LEFT JOIN page ON true
  LEFT JOIN kickoffs AS found ON found.id = page.id
  LEFT JOIN users ON users.id = found.user_id
  LEFT JOIN deployments ON deployments.id = found.deployment_id
  LEFT JOIN versions ON versions.id = found.version_id
 ORDER BY found.id DESC

-- name: of_all
true

-- name: of_one
deployment_id = coalesce(%(deployment)s::uuid, (SELECT deployments.id FROM deployments WHERE slug = %(slug)s::text AND removed_at IS NULL AND is_visible(deployments, %(sees)s::uuid)))

-- name: open
-- The parts fit the conditions of partial indexes, so that few open kickoffs are found among many ended ones.
((state = 'PENDING' AND ready) OR (state = 'PENDING' AND NOT ready) OR state = 'STARTED' OR state = 'PENDING_HUMAN_INPUT')

-- name: queued_or_running
-- As `open`, without those that wait for a person, which can be many for weeks.
((state = 'PENDING' AND ready) OR (state = 'PENDING' AND NOT ready) OR state = 'STARTED')

-- name: slugs_with
-- The slugs with this text, that which is the text first. Two are enough to know whether it is one.
SELECT slug
  FROM deployments
 WHERE removed_at IS NULL AND position(lower(%(text)s::text) IN slug) > 0 AND is_visible(deployments, %(sees)s::uuid)
 ORDER BY slug <> lower(%(text)s::text), slug
 LIMIT 2
