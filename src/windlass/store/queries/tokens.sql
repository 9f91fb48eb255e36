-- name: add
INSERT INTO tokens (id, kind, deployment_id, user_id, digest, last_four, profile, shown_copy, expires_at)
VALUES (%(id)s, %(kind)s, %(deployment)s, %(user)s, %(digest)s, %(last_four)s, %(profile)s, %(shown_copy)s, %(expires_at)s)
    ON CONFLICT (deployment_id, kind) WHERE shown_copy IS NOT NULL AND revoked_at IS NULL DO NOTHING
RETURNING id

-- name: by_digest
SELECT id, kind, deployment_id, user_id, profile, expires_at
  FROM tokens
 WHERE digest = %(digest)s AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now())

-- name: list
SELECT tokens.id, tokens.kind, deployments.slug AS deployment, users.name AS "user", last_four, tokens.profile,
       shown_copy IS NOT NULL AS shown, tokens.created_at, expires_at, revoked_at, last_used_at
  FROM tokens
  LEFT JOIN deployments ON deployments.id = tokens.deployment_id
  LEFT JOIN users ON users.id = tokens.user_id
 WHERE %(all)s OR revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now())
 ORDER BY tokens.id
 LIMIT %(limit)s

-- name: shown
SELECT tokens.id, tokens.kind, users.name AS "user", shown_copy
  FROM tokens
  LEFT JOIN users ON users.id = tokens.user_id
 WHERE tokens.deployment_id = %(deployment)s AND shown_copy IS NOT NULL AND revoked_at IS NULL
 ORDER BY tokens.kind

-- name: revoke
UPDATE tokens SET revoked_at = now() WHERE id = %(id)s AND revoked_at IS NULL
RETURNING id, kind, deployment_id, user_id, profile, expires_at, shown_copy IS NOT NULL AS shown, pg_notify('windlass_tokens', '')

-- name: named
SELECT id FROM tokens WHERE (last_four = %(name)s OR id::text = %(name)s) AND revoked_at IS NULL LIMIT 2

-- name: note_use
UPDATE tokens SET last_used_at = greatest(last_used_at, %(at)s) WHERE id = ANY (%(ids)s)

-- name: add_user
INSERT INTO users (id, name) VALUES (%(id)s, %(name)s) ON CONFLICT (name) DO NOTHING RETURNING id

-- name: user
SELECT id, name FROM users WHERE name = %(name)s

-- name: set_once
INSERT INTO settings (name, value) VALUES (%(name)s, %(value)s) ON CONFLICT (name) DO NOTHING

-- name: setting
SELECT value FROM settings WHERE name = %(name)s
