-- name: record
INSERT INTO audit_log (id, user_id, "user", token_id, action, target, details, address)
VALUES (%(entry)s, %(user_id)s, %(user)s, %(token_id)s, %(action)s, %(target)s, %(details)s::json, %(address)s)

-- name: listed
SELECT id, at, "user", token_id, action, target, details, address
  FROM audit_log
 WHERE (%(before)s::uuid IS NULL OR id < %(before)s::uuid)
   AND (%(user)s::text IS NULL OR "user" = %(user)s::text)
   AND (%(action)s::text IS NULL OR action = %(action)s::text OR starts_with(action, %(action)s::text || '.'))
   AND (%(target)s::text IS NULL OR target = %(target)s::text)
   AND (%(since)s::timestamptz IS NULL OR at >= %(since)s::timestamptz)
   AND (%(until)s::timestamptz IS NULL OR at < %(until)s::timestamptz)
 ORDER BY id DESC
 LIMIT %(limit)s
