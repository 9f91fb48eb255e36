-- name: of_deployment
SELECT number FROM crew_users WHERE deployment_id = %(deployment)s

-- name: lock
-- Numbers are given one after the other.
SELECT pg_advisory_xact_lock(hashtextextended('crew_users', 0))

-- name: give
-- A number that no deployment had, else the one that was given longest ago: a file of its former user may be left.
WITH free AS (
    SELECT number
      FROM unnest(%(numbers)s::integer[]) AS number LEFT JOIN crew_users USING (number)
     WHERE deployment_id IS NULL
     ORDER BY given_at NULLS FIRST, number
     LIMIT 1
)
INSERT INTO crew_users (number, deployment_id) SELECT number, %(deployment)s FROM free
ON CONFLICT (number) DO UPDATE SET deployment_id = EXCLUDED.deployment_id, given_at = now()
RETURNING number
