-- name: lock_slug
SELECT pg_advisory_xact_lock(hashtextextended('deployment ' || %(slug)s, 0))

-- name: by_slug
SELECT deployments.id, deployments.slug, deployments.profile, deployments.settings, deployments.webhooks, versions.id AS version_id, versions.number, versions.digest,
       versions.source, versions.manifest,
       CASE WHEN members_only THEN ARRAY(SELECT user_id FROM members WHERE deployment_id = deployments.id) END AS members
  FROM deployments
  LEFT JOIN versions ON versions.id = deployments.current_version
 WHERE deployments.slug = %(slug)s AND removed_at IS NULL

-- name: lock_settings
SELECT id, settings FROM deployments WHERE slug = %(slug)s AND removed_at IS NULL FOR NO KEY UPDATE

-- name: set_settings
UPDATE deployments SET settings = %(settings)s::json WHERE id = %(deployment)s
RETURNING pg_notify('windlass_deployments', slug), pg_notify('windlass_kickoffs', '')

-- name: all
SELECT id, slug, profile FROM deployments WHERE removed_at IS NULL ORDER BY slug LIMIT %(limit)s

-- name: add
INSERT INTO deployments (id, slug) VALUES (%(id)s, %(slug)s)

-- name: add_version
INSERT INTO versions (id, deployment_id, number, digest, source, manifest, snapshot, changes)
SELECT %(id)s, %(deployment)s, coalesce(max(number), 0) + 1, %(digest)s, %(source)s::json, %(manifest)s::json, %(snapshot)s, %(changes)s::json
  FROM versions WHERE deployment_id = %(deployment)s

-- name: make_current
UPDATE deployments SET current_version = %(version)s WHERE id = %(deployment)s
RETURNING pg_notify('windlass_deployments', slug)

-- name: note_current
INSERT INTO current_versions (deployment_id, position, version_id)
SELECT %(deployment)s, coalesce(max(position), 0) + 1, %(version)s FROM current_versions WHERE deployment_id = %(deployment)s

-- name: forget_current
DELETE FROM current_versions
 WHERE deployment_id = %(deployment)s
   AND position < (SELECT max(position) FROM current_versions WHERE deployment_id = %(deployment)s) - %(most)s::int

-- name: manifest
SELECT manifest FROM versions WHERE id = %(version)s

-- name: given_options
SELECT settings, versions.source -> 'options' AS options
  FROM deployments
  LEFT JOIN versions ON versions.id = deployments.current_version
 WHERE deployments.id = %(deployment)s

-- name: set_options
UPDATE deployments
   SET concurrency = %(concurrency)s, weight = %(weight)s, max_waiting = %(max_waiting)s, concurrency_strategy = %(concurrency_strategy)s,
       profile = %(profile)s
 WHERE id = %(deployment)s

-- name: pause
UPDATE deployments SET paused_at = coalesce(paused_at, now()) WHERE slug = %(slug)s AND removed_at IS NULL
RETURNING pg_notify('windlass_deployments', slug)

-- name: resume
UPDATE deployments SET paused_at = NULL WHERE slug = %(slug)s AND removed_at IS NULL
RETURNING pg_notify('windlass_deployments', slug), pg_notify('windlass_kickoffs', '')
