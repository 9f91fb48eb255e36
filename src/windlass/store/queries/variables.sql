-- name: of_deployment
SELECT variables.name, value, secret, updated_at, users.name AS updated_by
  FROM variables
  LEFT JOIN users ON users.id = updated_by
 WHERE deployment_id = %(deployment)s
 ORDER BY variables.name

-- name: set
INSERT INTO variables (deployment_id, name, value, secret, updated_by)
SELECT %(deployment)s, given.name, given.value, given.secret, %(by)s
  FROM unnest(%(names)s::text[], %(values)s::text[], %(secrets)s::boolean[]) AS given (name, value, secret)
    ON CONFLICT (deployment_id, name) DO UPDATE
       SET value = excluded.value, secret = excluded.secret, updated_at = now(), updated_by = excluded.updated_by

-- name: load
SELECT count(*) AS variables, coalesce(sum(octet_length(value)), 0) AS bytes FROM variables WHERE deployment_id = %(deployment)s

-- name: unset
DELETE FROM variables WHERE deployment_id = %(deployment)s AND name = %(name)s RETURNING name
