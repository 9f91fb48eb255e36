-- name: add
-- The turn comes after those of the person's open builds, and not before that of a build that was begun. So people take turns, and a person
-- who starts builds all the time gets no turn that lies behind those of all others.
INSERT INTO builds (id, deployment_id, origin, snapshot, created_by, turn)
SELECT %(id)s, %(deployment)s, %(origin)s::json, %(snapshot)s, %(by)s,
       greatest((SELECT coalesce(max(turn) + 1, 0) FROM builds WHERE created_by IS NOT DISTINCT FROM %(by)s::uuid AND state IN ('queued', 'building')),
                (SELECT coalesce(max(turn), 0) FROM builds WHERE state <> 'queued'))
RETURNING turn

-- name: get
SELECT builds.id, builds.deployment_id, deployments.slug, origin, builds.snapshot, builds.state, error, hint, builds.changes,
       versions.number AS version, host, users.name AS created_by, builds.created_at, started_at, finished_at,
       CASE WHEN builds.state = 'queued'
            THEN (SELECT count(*) FROM builds AS other
                   WHERE other.state = 'building' OR (other.state = 'queued' AND (other.turn, other.id) < (builds.turn, builds.id)))
       END AS builds_before
  FROM builds
  JOIN deployments ON deployments.id = builds.deployment_id
  LEFT JOIN versions ON versions.id = builds.version_id
  LEFT JOIN users ON users.id = builds.created_by
 WHERE builds.id = %(id)s

-- name: of_deployment
SELECT builds.id, builds.deployment_id, deployments.slug, origin, builds.snapshot, builds.state, error, hint, builds.changes,
       versions.number AS version, host, users.name AS created_by, builds.created_at, started_at, finished_at,
       CASE WHEN builds.state = 'queued'
            THEN (SELECT count(*) FROM builds AS other
                   WHERE other.state = 'building' OR (other.state = 'queued' AND (other.turn, other.id) < (builds.turn, builds.id)))
       END AS builds_before
  FROM builds
  JOIN deployments ON deployments.id = builds.deployment_id
  LEFT JOIN versions ON versions.id = builds.version_id
  LEFT JOIN users ON users.id = builds.created_by
 WHERE builds.deployment_id = %(deployment)s AND builds.id < %(before)s
 ORDER BY builds.id DESC
 LIMIT %(limit)s

-- name: begin
-- Takes a build over from a worker that was lost. A build that was not begun yet is skipped when a newer one waits. It is not begun while
-- another person's build of the deployment is done.
UPDATE builds
   SET state = CASE WHEN newer.waits THEN 'superseded' ELSE 'building' END,
       attempt = attempt + 1, host = %(host)s, started_at = CASE WHEN newer.waits THEN NULL ELSE coalesce(started_at, now()) END,
       finished_at = CASE WHEN newer.waits THEN now() END
  FROM (SELECT EXISTS (
               SELECT FROM builds AS this
                 JOIN builds AS other ON other.deployment_id = this.deployment_id AND other.id > this.id
                                            AND other.state IN ('queued', 'building', 'ready')
                WHERE this.id = %(id)s AND this.state = 'queued'
               ) AS waits) AS newer
 WHERE id = %(id)s AND (state = 'building' OR (state = 'queued' AND NOT EXISTS (
       SELECT FROM builds AS other
         JOIN procrastinate_jobs AS job ON job.task_name = 'build' AND job.status IN ('todo', 'doing') AND job.args ->> 'build' = other.id::text
        WHERE other.deployment_id = builds.deployment_id AND other.id < builds.id AND other.state = 'building')))
RETURNING builds.state, attempt, pg_notify('windlass_builds', id::text)

-- name: is_queued
SELECT true AS queued FROM builds WHERE id = %(id)s AND state = 'queued'

-- name: facts
-- What a build needs, with the settings and variables of its deployment.
SELECT builds.deployment_id, deployments.slug, builds.origin, builds.snapshot, deployments.settings, deployments.removed_at IS NOT NULL AS removed,
       (SELECT coalesce(max(seq), 0) FROM build_log WHERE build_id = builds.id) AS lines,
       (SELECT coalesce(json_agg(json_build_object('name', name, 'value', value, 'secret', secret, 'provider', provider,
                                                   'credential_id', credential_id, 'secret_name', secret_name) ORDER BY name), '[]')
          FROM variables WHERE variables.deployment_id = builds.deployment_id) AS variables
  FROM builds
  JOIN deployments ON deployments.id = builds.deployment_id
 WHERE builds.id = %(id)s

-- name: is_wanted
SELECT true AS wanted
  FROM builds
  JOIN deployments ON deployments.id = builds.deployment_id
 WHERE builds.id = %(id)s AND attempt = %(attempt)s AND state = 'building' AND removed_at IS NULL

-- name: set_snapshot
UPDATE builds SET snapshot = %(snapshot)s, origin = %(origin)s::json WHERE id = %(id)s AND attempt = %(attempt)s AND state = 'building'

-- name: add_lines
-- Writes nothing when another worker has taken the build over.
WITH build AS (
    SELECT id FROM builds WHERE id = %(id)s AND attempt = %(attempt)s AND state = 'building' FOR SHARE
), added AS (
    INSERT INTO build_log (build_id, seq, at, level, message)
    SELECT build.id, %(after)s + line.number, to_timestamp(line.at), line.level, line.message
      FROM build
     CROSS JOIN unnest(%(times)s::float8[], %(levels)s::text[], %(messages)s::text[]) WITH ORDINALITY AS line (at, level, message, number)
        ON CONFLICT DO NOTHING  -- lines are written again when the answer to their statement was lost
)
SELECT pg_notify('windlass_builds', id::text) FROM build

-- name: fail
UPDATE builds SET state = 'failed', error = %(error)s, hint = %(hint)s, finished_at = now()
 WHERE id = %(id)s AND attempt = %(attempt)s AND state = 'building'
RETURNING pg_notify('windlass_builds', id::text)

-- name: lock
-- The build as this worker has it, and the deployment with its current version. The locks keep both until the version is made.
SELECT builds.deployment_id, deployments.slug, deployments.removed_at IS NOT NULL AS removed, versions.manifest,
       EXISTS (SELECT FROM builds AS other
                WHERE other.deployment_id = builds.deployment_id AND other.id > builds.id AND other.version_id = deployments.current_version)
       AS newer_is_current
  FROM builds
  JOIN deployments ON deployments.id = builds.deployment_id
  LEFT JOIN versions ON versions.id = deployments.current_version
 WHERE builds.id = %(id)s AND attempt = %(attempt)s AND state = 'building'
   FOR UPDATE OF builds, deployments

-- name: finish
UPDATE builds SET state = 'ready', version_id = %(version)s, changes = %(changes)s::json, finished_at = now() WHERE id = %(id)s
RETURNING pg_notify('windlass_builds', id::text)

-- name: log
SELECT seq, at, level, message FROM build_log WHERE build_id = %(id)s AND seq > %(after)s ORDER BY seq LIMIT %(limit)s

-- name: remove_old_lines
DELETE FROM build_log
 WHERE build_id = ANY (ARRAY (SELECT id FROM builds
                               WHERE finished_at < now() - %(age)s AND EXISTS (SELECT FROM build_log WHERE build_id = builds.id)
                               ORDER BY id
                               LIMIT %(limit)s))

-- name: in_use
SELECT versions.snapshot, versions.source ->> 'environment' AS environment
  FROM deployments
  JOIN versions ON versions.id = deployments.current_version
 WHERE deployments.removed_at IS NULL AND versions.snapshot IS NOT NULL
 UNION
SELECT snapshot, NULL FROM builds WHERE state IN ('queued', 'building') AND snapshot IS NOT NULL
