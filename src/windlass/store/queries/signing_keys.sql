-- name: make_organization_id
INSERT INTO settings (name, value) VALUES ('organization_id', gen_random_uuid()::text) ON CONFLICT (name) DO NOTHING

-- name: organization_id
SELECT value FROM settings WHERE name = 'organization_id'

-- name: all
SELECT id, key, created_at, signs_from FROM signing_keys ORDER BY signs_from, created_at

-- name: lock
-- Changes of the keys happen one after the other.
SELECT pg_advisory_xact_lock(hashtextextended('signing_keys', 0))

-- name: waiting
SELECT id, signs_from FROM signing_keys WHERE signs_from > now() LIMIT 1

-- name: add
INSERT INTO signing_keys (id, key, signs_from) VALUES (%(id)s, %(key)s, now() + %(wait)s)
RETURNING id, signs_from, pg_notify('windlass_signing_keys', '')

-- name: sign_now
UPDATE signing_keys SET signs_from = now() WHERE id = %(id)s
RETURNING id, signs_from, pg_notify('windlass_signing_keys', '')

-- name: remove_superseded
-- Removes the keys whose successor has signed for longer than %(needed)s.
DELETE FROM signing_keys
 WHERE id IN (SELECT id
                FROM (SELECT id, lead(signs_from) OVER (ORDER BY signs_from, created_at) AS superseded_at FROM signing_keys) AS followed
               WHERE superseded_at < now() - %(needed)s::interval)
RETURNING id

-- name: remove_others
DELETE FROM signing_keys WHERE id <> %(id)s RETURNING id
