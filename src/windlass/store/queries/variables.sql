-- name: of_deployment
SELECT variables.name, value, secret, coalesce(variables.provider, credentials.provider) AS provider, credentials.name AS credential,
       coalesce(credentials.method, defaults.method) AS method, secret_name, read_at, variables.updated_at, users.name AS updated_by
  FROM variables
  LEFT JOIN credentials ON credentials.id = credential_id
  LEFT JOIN credentials AS defaults ON defaults.provider = variables.provider AND defaults.is_default
  LEFT JOIN users ON users.id = variables.updated_by
 WHERE deployment_id = %(deployment)s
 ORDER BY variables.name

-- name: sealed
SELECT name, value, secret, provider, credential_id, secret_name FROM variables WHERE deployment_id = %(deployment)s ORDER BY name

-- name: share_deployment
-- The insert of a variable takes this lock, too. It is taken first here, as in the transaction that publishes a version.
SELECT FROM deployments WHERE id = %(deployment)s FOR KEY SHARE

-- name: before
SELECT name, value, secret, provider, credential_id, secret_name
  FROM variables
 WHERE deployment_id = %(deployment)s AND name = ANY (%(names)s)
 ORDER BY name
   FOR NO KEY UPDATE

-- name: set
-- The time of a read stays with the value that was read.
INSERT INTO variables (deployment_id, name, value, secret, provider, credential_id, secret_name, updated_by, set_as)
SELECT %(deployment)s, given.name, given.value, given.secret, given.provider, given.credential_id, given.secret_name, %(by)s, %(set_as)s
  FROM unnest(%(names)s::text[], %(values)s::text[], %(secrets)s::boolean[], %(providers)s::text[], %(credentials)s::uuid[],
              %(secret_names)s::text[]) AS given (name, value, secret, provider, credential_id, secret_name)
    ON CONFLICT (deployment_id, name) DO UPDATE
       SET value = excluded.value, secret = excluded.secret, provider = excluded.provider, credential_id = excluded.credential_id,
           secret_name = excluded.secret_name, updated_at = now(), updated_by = excluded.updated_by,
           set_as = excluded.set_as,
           read_at = CASE WHEN excluded.secret_name IS NOT NULL AND excluded.value = variables.value THEN variables.read_at END

-- name: store_read
WITH read AS (
    SELECT *
      FROM unnest(%(names)s::text[], %(values)s::text[], %(providers)s::text[], %(credentials)s::uuid[], %(secret_names)s::text[])
           AS read (name, value, provider, credential_id, secret_name)
), locked AS (
    SELECT variables.name, read.value
      FROM variables
      JOIN read ON read.name = variables.name AND read.secret_name = variables.secret_name
                   AND read.provider IS NOT DISTINCT FROM variables.provider
                   AND read.credential_id IS NOT DISTINCT FROM variables.credential_id
     WHERE deployment_id = %(deployment)s
     ORDER BY variables.name
       FOR NO KEY UPDATE OF variables
)
UPDATE variables SET value = locked.value, read_at = %(at)s FROM locked WHERE deployment_id = %(deployment)s AND variables.name = locked.name

-- name: load
SELECT count(*) AS variables, coalesce(sum(octet_length(value)), 0) AS bytes FROM variables WHERE deployment_id = %(deployment)s

-- name: unset
DELETE FROM variables WHERE deployment_id = %(deployment)s AND name = %(name)s RETURNING name
