-- name: deployments
-- Returns a page of deployments with the load of their queues. Only the deployments of the page are counted.
SELECT page.*,
       (SELECT count(*) FROM kickoffs WHERE deployment_id = page.id AND state = 'PENDING' AND ready)
     + (SELECT count(*) FROM kickoffs WHERE deployment_id = page.id AND state = 'PENDING' AND NOT ready) AS waiting,
       coalesce(runs, 0) AS running,
       (SELECT created_at FROM kickoffs WHERE deployment_id = page.id ORDER BY id DESC LIMIT 1) AS last_kickoff_at
  FROM (SELECT *
          FROM (SELECT deployments.id, slug, deployments.created_at, paused_at, concurrency, weight, versions.number AS version, members_only, latest.id AS build,
                       latest.state AS build_state,
                       CASE WHEN current_version IS NULL AND latest.state = 'failed' THEN 'failed'
                            WHEN current_version IS NULL THEN 'building'
                            WHEN paused_at IS NOT NULL THEN 'paused'
                            ELSE 'online'
                       END AS state
                  FROM deployments
                  LEFT JOIN versions ON versions.id = current_version
                  LEFT JOIN LATERAL (
                       SELECT id, state FROM builds WHERE deployment_id = deployments.id ORDER BY id DESC LIMIT 1
                       ) AS latest ON true
                 WHERE removed_at IS NULL AND is_visible(deployments, %(sees)s::uuid)
                   AND (%(id)s::uuid IS NULL OR deployments.id = %(id)s::uuid)
                   AND (%(slug)s::text IS NULL OR slug = %(slug)s::text)
                   AND (%(search)s::text IS NULL OR position(lower(%(search)s::text) IN slug) > 0)
                   AND CASE %(order)s::text
                            WHEN 'slug' THEN slug > coalesce(%(after)s::text, '')
                            WHEN '-slug' THEN %(after)s::text IS NULL OR slug < %(after)s::text
                            WHEN 'created_at' THEN %(after)s::text IS NULL OR deployments.id > (%(after)s::text)::uuid
                            ELSE %(after)s::text IS NULL OR deployments.id < (%(after)s::text)::uuid
                       END) AS found
         WHERE %(state)s::text IS NULL OR state = %(state)s::text
         ORDER BY CASE WHEN %(order)s::text = 'slug' THEN slug END, CASE WHEN %(order)s::text = '-slug' THEN slug END DESC,
                  CASE WHEN %(order)s::text = 'created_at' THEN id END, CASE WHEN %(order)s::text = '-created_at' THEN id END DESC
         LIMIT %(limit)s) AS page
  LEFT JOIN (SELECT deployment_id, count(*) AS runs FROM kickoffs WHERE state = 'STARTED' GROUP BY deployment_id) AS running
    ON running.deployment_id = page.id
 ORDER BY CASE WHEN %(order)s::text = 'slug' THEN slug END, CASE WHEN %(order)s::text = '-slug' THEN slug END DESC,
          CASE WHEN %(order)s::text = 'created_at' THEN id END, CASE WHEN %(order)s::text = '-created_at' THEN id END DESC

-- name: states
-- Counts the deployments that a person sees and that match a search, by their state.
SELECT state, count(*) AS count
  FROM (SELECT CASE WHEN current_version IS NULL AND latest.state = 'failed' THEN 'failed'
                    WHEN current_version IS NULL THEN 'building'
                    WHEN paused_at IS NOT NULL THEN 'paused'
                    ELSE 'online'
               END AS state
          FROM deployments
          LEFT JOIN LATERAL (
               SELECT state FROM builds WHERE current_version IS NULL AND deployment_id = deployments.id ORDER BY id DESC LIMIT 1
               ) AS latest ON true
         WHERE removed_at IS NULL AND is_visible(deployments, %(sees)s::uuid)
           AND (%(search)s::text IS NULL OR position(lower(%(search)s::text) IN slug) > 0)) AS found
 GROUP BY state

-- name: warnings
-- Returns the warnings of the newest kickoffs of a deployment, one for each code, as the newest kickoff has it. Kickoffs with long lists of
-- warnings are left out: their texts would have to be read.
SELECT code, (array_agg(message ORDER BY id DESC))[1] AS message, (array_agg(id ORDER BY id DESC))[1] AS kickoff, count(DISTINCT id) AS kickoffs
  FROM (SELECT id, warnings FROM kickoffs WHERE deployment_id = %(deployment)s ORDER BY id DESC LIMIT %(newest)s) AS newest
 CROSS JOIN LATERAL json_to_recordset(CASE WHEN pg_column_size(warnings) < 20000 THEN warnings ELSE '[]' END) AS warning (code text, message text)
 GROUP BY code
 ORDER BY kickoff DESC, code
 LIMIT %(limit)s

-- name: newest_inputs
-- The preview of large inputs is left out: their text would have to be read.
SELECT id, created_at, CASE WHEN pg_column_size(inputs) < 20000 THEN left(inputs::text, %(longest)s) END AS preview
  FROM kickoffs
 WHERE deployment_id = %(deployment)s
 ORDER BY id DESC
 LIMIT %(limit)s

-- name: inputs
SELECT inputs FROM kickoffs WHERE id = %(kickoff)s AND deployment_id = %(deployment)s

-- name: workers
SELECT id, host, pid, slots, started_at, seen_at, alive_until > now() AS alive, version, running, zygotes, zygote_memory, boundary
  FROM workers
 WHERE %(after)s::uuid IS NULL OR id > %(after)s::uuid
 ORDER BY id
 LIMIT %(limit)s

-- name: boundaries
SELECT boundary, count(*) AS workers, (array_agg(DISTINCT host ORDER BY host))[:%(hosts)s] AS hosts, count(DISTINCT host) AS all_hosts
  FROM workers
 WHERE alive_until > now() AND (deployments IS NULL OR %(slug)s = ANY (deployments)) AND %(slug)s <> ALL (excluded)
 GROUP BY boundary
 ORDER BY workers DESC, min(id::text)
 LIMIT %(limit)s

-- name: queues
-- The smallest id as text: an index has it, and ids are in the order of creation.
SELECT slug, ready.count AS waiting, ready.first::uuid AS first,
       (SELECT count(*) FROM kickoffs WHERE deployment_id = deployments.id AND state = 'PENDING' AND NOT ready) AS delayed,
       coalesce(runs, 0) AS running, paused_at IS NOT NULL AS paused
  FROM deployments
 CROSS JOIN LATERAL (
       SELECT count(*) AS count, min(id::text) AS first
         FROM kickoffs
        WHERE deployment_id = deployments.id AND state = 'PENDING' AND ready
       ) AS ready
  LEFT JOIN (SELECT deployment_id, count(*) AS runs FROM kickoffs WHERE state = 'STARTED' GROUP BY deployment_id) AS running
    ON running.deployment_id = deployments.id
 WHERE removed_at IS NULL AND is_visible(deployments, %(sees)s::uuid)
 ORDER BY slug

-- name: worker_totals
SELECT count(*) AS workers, coalesce(sum(slots), 0) AS slots FROM workers WHERE alive_until > now()
