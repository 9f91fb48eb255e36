-- name: add
-- The lock lets a user who is disabled at this moment be disabled before, or end the new session.
INSERT INTO sessions (id, digest, user_id, method, address, agent)
SELECT %(id)s, %(digest)s, id, %(method)s, %(address)s, %(agent)s
  FROM users
 WHERE id = %(user)s AND role IS NOT NULL AND disabled_at IS NULL
   AND (%(hash)s::text IS NULL OR password_hash = %(hash)s)
   FOR SHARE
RETURNING id

-- name: by_digest
-- The session, unless it is too old, or its user may not use the dashboard.
SELECT sessions.id, digest, user_id, users.name AS "user", role, method, seen_at < now() - interval '1 minute' AS is_due, password_hash IS NOT NULL AS has_password
  FROM sessions
  JOIN users ON users.id = sessions.user_id
 WHERE digest = %(digest)s AND role IS NOT NULL AND disabled_at IS NULL
   AND seen_at > now() - %(idle)s::interval AND sessions.created_at > now() - CASE method WHEN 'oidc' THEN %(of_provider)s::interval ELSE %(longest)s::interval END

-- name: note_sign_in
-- The tokens of the person count again on all servers.
UPDATE sign_in_identities SET signed_in_at = now() WHERE user_id = %(user)s RETURNING pg_notify('windlass_tokens', '')

-- name: note_use
UPDATE sessions SET seen_at = now() WHERE id = %(id)s

-- name: of_user
SELECT id, method, address, agent, created_at, seen_at
  FROM sessions
 WHERE user_id = %(user)s AND seen_at > now() - %(idle)s::interval
   AND created_at > now() - CASE method WHEN 'oidc' THEN %(of_provider)s::interval ELSE %(longest)s::interval END
 ORDER BY seen_at DESC
 LIMIT %(limit)s

-- name: end
DELETE FROM sessions WHERE id = %(id)s AND user_id = %(user)s RETURNING id

-- name: end_others
-- Ends the sessions of a user, but for one, if it is given.
DELETE FROM sessions WHERE user_id = %(user)s AND id IS DISTINCT FROM %(kept)s RETURNING id

-- name: end_oldest
-- Ends the sessions of a user beyond the newest ones.
DELETE FROM sessions WHERE id IN (SELECT id FROM sessions WHERE user_id = %(user)s ORDER BY seen_at DESC OFFSET %(most)s)

-- name: end_expired
DELETE FROM sessions WHERE seen_at < now() - %(idle)s::interval OR created_at < now() - %(longest)s::interval

-- name: add_link
INSERT INTO sign_in_links (digest, user_id, expires_at)
SELECT %(digest)s, id, now() + %(valid)s
  FROM users
 WHERE id = %(user)s AND role IS NOT NULL AND disabled_at IS NULL
   FOR SHARE
RETURNING user_id

-- name: use_link
DELETE FROM sign_in_links WHERE digest = %(digest)s AND expires_at > now() RETURNING user_id

-- name: end_expired_links
DELETE FROM sign_in_links WHERE expires_at < now()

-- name: end_links
DELETE FROM sign_in_links WHERE user_id = %(user)s

-- name: may_sign_in
SELECT id, name, role FROM users WHERE id = %(user)s AND role IS NOT NULL AND disabled_at IS NULL

-- name: password
SELECT id, password_hash FROM users WHERE name = %(name)s AND role IS NOT NULL AND disabled_at IS NULL

-- name: set_password
UPDATE users SET password_hash = %(hash)s WHERE id = %(user)s RETURNING id

-- name: update_hash
UPDATE users SET password_hash = %(new)s WHERE id = %(user)s AND password_hash = %(old)s RETURNING id

-- name: roles_with_password
-- The roles of which a user can sign in with a password.
SELECT DISTINCT role FROM users WHERE disabled_at IS NULL AND password_hash IS NOT NULL

-- name: by_identity
SELECT users.id, users.name
  FROM sign_in_identities
  JOIN users ON users.id = sign_in_identities.user_id
 WHERE issuer = %(issuer)s AND subject = %(subject)s

-- name: link_identity
-- The user with this name, unless another person of the provider signs in as this user.
INSERT INTO sign_in_identities (issuer, subject, user_id)
SELECT %(issuer)s, %(subject)s, id
  FROM users
 WHERE name = %(name)s AND NOT EXISTS (SELECT FROM sign_in_identities WHERE user_id = users.id AND issuer = %(issuer)s)
    ON CONFLICT DO NOTHING
RETURNING user_id
