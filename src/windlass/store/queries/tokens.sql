-- name: add
INSERT INTO tokens (id, kind, deployment_id, user_id, digest, last_four, profile, shown_copy, expires_at, scopes, name)
VALUES (%(id)s, %(kind)s, %(deployment)s, %(user)s, %(digest)s, %(last_four)s, %(profile)s, %(shown_copy)s, %(expires_at)s, %(scopes)s, %(name)s)
    ON CONFLICT (deployment_id, kind) WHERE shown_copy IS NOT NULL AND revoked_at IS NULL DO NOTHING
RETURNING id

-- name: by_digests
-- Tokens whose time is over are found too, so that their clients learn why they are refused. A token of a person who signs in with OpenID
-- Connect expires %(longest)s after it was made at the latest, and counts for %(within)s after a sign-in. The shown tokens of crews and of
-- the command line are those of the server, also if such a person is their user.
SELECT digest, tokens.id, kind, deployment_id, tokens.user_id, profile,
       least(expires_at, CASE WHEN signed_in_at IS NOT NULL THEN tokens.created_at + %(longest)s::interval END) AS expires_at,
       scopes, tokens.name, users.name AS "user", role, last_four, signed_in_at + %(within)s::interval AS sign_in_until
  FROM tokens
  LEFT JOIN users ON users.id = tokens.user_id
  LEFT JOIN LATERAL (
       SELECT max(signed_in_at) AS signed_in_at FROM sign_in_identities WHERE sign_in_identities.user_id = tokens.user_id
       ) AS provider ON shown_copy IS NULL
 WHERE digest = ANY (%(digests)s) AND revoked_at IS NULL AND disabled_at IS NULL

-- name: list
SELECT tokens.id, tokens.kind, deployments.slug AS deployment, users.name AS "user", last_four, tokens.profile,
       shown_copy IS NOT NULL AS shown, tokens.created_at, ends.expires_at, revoked_at, last_used_at,
       scopes, users.disabled_at, tokens.name, role, signed_in_at + %(within)s::interval AS sign_in_until
  FROM tokens
  LEFT JOIN deployments ON deployments.id = tokens.deployment_id
  LEFT JOIN users ON users.id = tokens.user_id
  LEFT JOIN LATERAL (
       SELECT max(signed_in_at) AS signed_in_at FROM sign_in_identities WHERE sign_in_identities.user_id = tokens.user_id
       ) AS provider ON shown_copy IS NULL
 CROSS JOIN LATERAL (
       SELECT least(tokens.expires_at, CASE WHEN signed_in_at IS NOT NULL THEN tokens.created_at + %(longest)s::interval END) AS expires_at
       ) AS ends
 WHERE (%(all)s OR revoked_at IS NULL AND (ends.expires_at IS NULL OR ends.expires_at > now()))
   AND (%(user)s::uuid IS NULL OR tokens.user_id = %(user)s::uuid) AND (%(after)s::uuid IS NULL OR tokens.id > %(after)s::uuid)
   AND (%(before)s::uuid IS NULL OR tokens.id < %(before)s::uuid)
 ORDER BY CASE WHEN %(newest_first)s THEN tokens.id END DESC, tokens.id
 LIMIT %(limit)s

-- name: shown
SELECT tokens.id, tokens.kind, users.name AS "user", shown_copy, last_four
  FROM tokens
  LEFT JOIN users ON users.id = tokens.user_id
 WHERE tokens.deployment_id = %(deployment)s AND shown_copy IS NOT NULL AND revoked_at IS NULL
 ORDER BY tokens.kind

-- name: revoke
UPDATE tokens SET revoked_at = now() WHERE id = %(id)s AND revoked_at IS NULL
RETURNING id, kind, deployment_id, user_id, profile, expires_at, scopes, name, shown_copy IS NOT NULL AS shown, pg_notify('windlass_tokens', '')

-- name: facts
SELECT tokens.kind, last_four, slug AS deployment, users.name AS "user", user_id, tokens.name, scopes, expires_at
  FROM tokens
  LEFT JOIN deployments ON deployments.id = deployment_id
  LEFT JOIN users ON users.id = user_id
 WHERE tokens.id = %(id)s

-- name: of_the_command_line
SELECT id, shown_copy FROM tokens WHERE user_id = %(user)s AND kind = 'personal' AND shown_copy IS NOT NULL AND revoked_at IS NULL

-- name: named
SELECT id FROM tokens WHERE (last_four = %(name)s OR id::text = %(name)s) AND revoked_at IS NULL LIMIT 2

-- name: note_use
UPDATE tokens SET last_used_at = greatest(last_used_at, %(at)s) WHERE id = ANY (%(ids)s)

-- name: add_user
INSERT INTO users (id, name, role) VALUES (%(id)s, %(name)s, %(role)s) ON CONFLICT (name) DO NOTHING RETURNING id

-- name: user
SELECT id, name, role, created_at, disabled_at,
       (SELECT max(signed_in_at) FROM sign_in_identities WHERE user_id = users.id) AS signed_in_at
  FROM users
 WHERE CASE WHEN %(id)s::uuid IS NULL THEN name = %(name)s ELSE id = %(id)s::uuid END

-- name: users
SELECT id, name, role, created_at, disabled_at,
       (SELECT max(signed_in_at) FROM sign_in_identities WHERE user_id = users.id) AS signed_in_at
  FROM users
 WHERE %(after)s::text IS NULL OR name > %(after)s::text
 ORDER BY name
 LIMIT %(limit)s

-- name: known_names
SELECT name FROM users WHERE name = ANY(%(names)s::text[])

-- name: lock_owners
-- Changes of the owners happen one after the other: of two that demote each other, the second one finds itself the last.
SELECT pg_advisory_xact_lock(hashtextextended('owners', 0))

-- name: owners
SELECT coalesce(bool_or(id = %(id)s), false) AS is_owner, count(*) FILTER (WHERE id <> %(id)s) AS others
  FROM users
 WHERE role = 'owner' AND disabled_at IS NULL

-- name: set_role
UPDATE users SET role = %(role)s WHERE id = %(id)s RETURNING pg_notify('windlass_tokens', '')

-- name: disable_user
UPDATE users SET disabled_at = coalesce(disabled_at, now()) WHERE id = %(id)s RETURNING pg_notify('windlass_tokens', '')

-- name: end_sign_ins
-- Ends the sessions and the sign-in links of a user who may not use the dashboard any more. They don't come back with a role.
WITH barred AS (
    SELECT id FROM users WHERE id = %(id)s AND (role IS NULL OR disabled_at IS NOT NULL)
), links AS (
    DELETE FROM sign_in_links USING barred WHERE user_id = barred.id
)
DELETE FROM sessions USING barred WHERE user_id = barred.id

-- name: enable_user
UPDATE users SET disabled_at = NULL WHERE id = %(id)s RETURNING pg_notify('windlass_tokens', '')

-- name: set_once
INSERT INTO settings (name, value) VALUES (%(name)s, %(value)s) ON CONFLICT (name) DO NOTHING

-- name: setting
SELECT value FROM settings WHERE name = %(name)s
