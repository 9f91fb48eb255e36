-- name: lock
SELECT pg_advisory_xact_lock(hashtextextended('credentials', 0))

-- name: share
SELECT pg_advisory_xact_lock_shared(hashtextextended('credentials', 0))

-- name: rows
SELECT credentials.id, credentials.name, provider, method, configuration, is_default, roles, deployment_ids,
       ARRAY(SELECT slug FROM deployments WHERE id = ANY (deployment_ids) AND removed_at IS NULL ORDER BY slug) AS deployments,
       credentials.created_at, creators.name AS created_by, updated_at, updaters.name AS updated_by
  FROM credentials
  LEFT JOIN users AS creators ON creators.id = credentials.created_by
  LEFT JOIN users AS updaters ON updaters.id = updated_by
 WHERE {which}
 ORDER BY credentials.name
 LIMIT {limit}

-- name: usable
-- Those that a person can use in some deployment. NULL: an owner of the server, who sees all.
(%(sees)s::uuid IS NULL OR 'developer' = ANY (roles)
 OR EXISTS (SELECT
              FROM deployments
             WHERE deployments.id = ANY (deployment_ids) AND removed_at IS NULL AND is_visible(deployments, %(sees)s::uuid)))

-- name: named
credentials.name = ANY (%(names)s::text[]) OR (is_default AND provider = ANY (%(providers)s::text[]))

-- name: used
credentials.id = ANY (%(ids)s::uuid[]) OR (is_default AND provider = ANY (%(providers)s::text[]))

-- name: deployments
SELECT slug FROM deployments WHERE slug = ANY (%(slugs)s::text[]) AND removed_at IS NULL

-- name: set_as
SELECT name, set_as FROM variables WHERE deployment_id = %(deployment)s

-- name: uses
SELECT credentials.id, count(*) AS variables
  FROM credentials
  JOIN variables ON variables.credential_id = credentials.id OR (credentials.is_default AND variables.provider = credentials.provider)
 GROUP BY credentials.id

-- name: count
SELECT count(*) AS count FROM credentials

-- name: add
INSERT INTO credentials (id, name, provider, method, configuration, is_default, roles, deployment_ids, created_by, updated_by)
VALUES (%(id)s, %(name)s, %(provider)s, %(method)s, %(configuration)s, %(is_default)s, %(roles)s::text[],
        ARRAY(SELECT deployments.id FROM deployments WHERE slug = ANY (%(deployments)s::text[]) AND removed_at IS NULL), %(by)s, %(by)s)
RETURNING roles, deployment_ids

-- name: change
-- The time is not that of the beginning of the transaction, which may have waited for the lock.
UPDATE credentials
   SET name = %(name)s, method = %(method)s, configuration = %(configuration)s, is_default = %(is_default)s,
       roles = %(roles)s::text[],
       deployment_ids = ARRAY(SELECT deployments.id FROM deployments WHERE slug = ANY (%(deployments)s::text[]) AND removed_at IS NULL),
       updated_at = clock_timestamp(), updated_by = %(by)s
 WHERE id = %(id)s
RETURNING roles, deployment_ids

-- name: end_default
UPDATE credentials SET is_default = false WHERE provider = %(provider)s AND is_default AND id <> %(id)s

-- name: remove
DELETE FROM credentials WHERE id = %(id)s

-- name: variables_of
SELECT slug || '/' || variables.name AS variable
  FROM variables
  JOIN deployments ON deployments.id = deployment_id
 WHERE (credential_id = %(id)s::uuid OR provider = %(provider)s::text) AND is_visible(deployments, %(sees)s::uuid)
 ORDER BY slug, variables.name
 LIMIT %(limit)s

-- name: forget_values
-- Removes the stored values of variables that use the credential, but for those of these deployments, or set by people with these roles.
WITH locked AS (
    SELECT deployment_id, name
      FROM variables
     WHERE (credential_id = %(id)s OR provider = %(provider)s::text) AND value IS NOT NULL
       AND NOT (deployment_id = ANY (%(kept_for)s::uuid[]) OR set_as = ANY (%(kept_as)s::text[]))
     ORDER BY deployment_id, name
       FOR NO KEY UPDATE
)
UPDATE variables SET value = NULL, read_at = NULL FROM locked
 WHERE variables.deployment_id = locked.deployment_id AND variables.name = locked.name
