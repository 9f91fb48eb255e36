-- name: standing
-- What a person is in the deployment with this slug, or in that of a build, a kickoff, a delivery or a question. The id of a kickoff also names its
-- newest question.
SELECT slug, is_visible(deployments, %(person)s) AS sees,
       EXISTS (SELECT FROM members WHERE deployment_id = deployments.id AND user_id = %(person)s AND is_owner) AS owns,
       members_only
  FROM deployments
 WHERE removed_at IS NULL AND {which}

-- name: by_slug
slug = %(subject)s::text

-- name: by_build
id = (SELECT deployment_id FROM builds WHERE id = %(subject)s::uuid)

-- name: by_kickoff
id = (SELECT deployment_id FROM kickoffs WHERE id = %(subject)s::uuid)

-- name: by_delivery
id = (SELECT deployment_id FROM deliveries WHERE id = %(subject)s::uuid)

-- name: by_question
id = coalesce((SELECT deployment_id FROM questions WHERE id = %(subject)s::uuid), (SELECT deployment_id FROM kickoffs WHERE id = %(subject)s::uuid))

-- name: of_deployment
SELECT users.name AS "user", is_owner, added_at
  FROM members
  JOIN users ON users.id = user_id
  JOIN deployments ON deployments.id = deployment_id
 WHERE slug = %(slug)s AND removed_at IS NULL
 ORDER BY NOT is_owner, users.name
 LIMIT %(limit)s

-- name: count
SELECT count(*) AS count FROM members WHERE deployment_id = %(deployment)s

-- name: put
INSERT INTO members (deployment_id, user_id, is_owner)
SELECT %(deployment)s, id, %(is_owner)s FROM users WHERE name = %(user)s
    ON CONFLICT (deployment_id, user_id) DO UPDATE SET is_owner = excluded.is_owner
RETURNING user_id

-- name: remove
DELETE FROM members
 WHERE deployment_id = %(deployment)s AND user_id = (SELECT id FROM users WHERE name = %(user)s)
RETURNING user_id

-- name: limit_to_members
UPDATE deployments SET members_only = %(members_only)s WHERE id = %(deployment)s

-- name: notify
-- The servers read again who sees the crew.
SELECT pg_notify('windlass_deployments', %(slug)s)
