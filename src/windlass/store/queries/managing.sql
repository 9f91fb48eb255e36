-- name: add
INSERT INTO deployments (id, slug, deployed, members_only) VALUES (%(id)s, %(slug)s, true, %(members_only)s)
    ON CONFLICT (slug) DO NOTHING
RETURNING id

-- name: add_owner
INSERT INTO members (deployment_id, user_id, is_owner) VALUES (%(deployment)s, %(owner)s, true)

-- name: lock
-- A deployment as the holder of the lock finds it. Changes of one deployment happen one after the other.
SELECT deployments.id, versions.number, current_version
  FROM deployments
  LEFT JOIN versions ON versions.id = current_version
 WHERE slug = %(slug)s AND removed_at IS NULL
   FOR NO KEY UPDATE OF deployments

-- name: current_files
-- The files of the current version, and the build that has not ended, if any.
SELECT versions.number, versions.snapshot,
       (SELECT origin FROM builds WHERE builds.deployment_id = deployments.id AND version_id = versions.id) AS origin,
       (SELECT id FROM builds WHERE builds.deployment_id = deployments.id AND state IN ('queued', 'building') ORDER BY id DESC LIMIT 1) AS open_build
  FROM deployments
  LEFT JOIN versions ON versions.id = current_version
 WHERE deployments.id = %(deployment)s

-- name: set_deployed
UPDATE deployments SET deployed = true WHERE id = %(deployment)s

-- name: versions
SELECT versions.id, number, versions.created_at, builds.id AS build, versions.id = current_version AS current, versions.changes,
       CASE WHEN %(whole)s THEN versions.source END AS source, CASE WHEN %(whole)s THEN versions.manifest END AS manifest
  FROM versions
  JOIN deployments ON deployments.id = versions.deployment_id
  LEFT JOIN builds ON builds.deployment_id = versions.deployment_id AND builds.version_id = versions.id
 WHERE versions.deployment_id = %(deployment)s AND number BETWEEN %(first)s AND %(last)s
 ORDER BY number DESC
 LIMIT %(limit)s

-- name: version
SELECT id FROM versions WHERE deployment_id = %(deployment)s AND number = %(number)s

-- name: version_before
SELECT versions.id, number
  FROM (SELECT version_id FROM current_versions WHERE deployment_id = %(deployment)s ORDER BY position DESC OFFSET 1 LIMIT 1) AS before
  JOIN versions ON versions.id = before.version_id

-- name: remove_last_current
DELETE FROM current_versions
 WHERE deployment_id = %(deployment)s AND position = (SELECT max(position) FROM current_versions WHERE deployment_id = %(deployment)s)

-- name: open_kickoffs
SELECT (SELECT count(*) FROM kickoffs WHERE state = 'PENDING' AND ready AND deployment_id = %(deployment)s)
     + (SELECT count(*) FROM kickoffs WHERE state = 'PENDING' AND NOT ready AND deployment_id = %(deployment)s)
     + (SELECT count(*) FROM kickoffs WHERE state = 'STARTED' AND deployment_id = %(deployment)s)
     + (SELECT count(*) FROM kickoffs WHERE state = 'PENDING_HUMAN_INPUT' AND deployment_id = %(deployment)s) AS count

-- name: remove
-- Its slug becomes free. A pause keeps its waiting kickoffs from being claimed until they are stopped.
WITH tokens_of_it AS (
    UPDATE tokens SET revoked_at = now() WHERE deployment_id = %(deployment)s AND revoked_at IS NULL
), variables_of_it AS (
    DELETE FROM variables WHERE deployment_id = %(deployment)s
)
UPDATE deployments SET removed_at = now(), slug = 'removed-' || id, paused_at = coalesce(paused_at, now()) WHERE id = %(deployment)s
RETURNING pg_notify('windlass_deployments', %(slug)s), pg_notify('windlass_tokens', ''), pg_notify('windlass_kickoffs', '')

-- name: remove_rows_of_builds
DELETE FROM build_log WHERE build_id IN (SELECT id FROM builds WHERE deployment_id = %(deployment)s)

-- name: remove_builds
DELETE FROM builds WHERE deployment_id = %(deployment)s

-- name: forget_version
UPDATE deployments SET current_version = NULL WHERE id = %(deployment)s AND removed_at IS NOT NULL RETURNING id

-- name: remove_from_credentials
UPDATE credentials SET deployment_ids = array_remove(deployment_ids, %(deployment)s::uuid) WHERE %(deployment)s::uuid = ANY (deployment_ids)

-- name: remove_current_versions
DELETE FROM current_versions WHERE deployment_id = %(deployment)s

-- name: remove_versions
DELETE FROM versions WHERE deployment_id = %(deployment)s

-- name: remove_tokens
DELETE FROM tokens WHERE deployment_id = %(deployment)s

-- name: remove_others
WITH keys AS (
    DELETE FROM idempotency_keys WHERE deployment_id = %(deployment)s
), progress AS (
    DELETE FROM retention_progress WHERE deployment_id = %(deployment)s
), variables_of_it AS (
    DELETE FROM variables WHERE deployment_id = %(deployment)s
)
DELETE FROM deployments WHERE id = %(deployment)s
