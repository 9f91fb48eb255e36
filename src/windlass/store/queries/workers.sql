-- name: seen
INSERT INTO workers (id, host, pid, slots, alive_until)
VALUES (%(id)s, %(host)s, %(pid)s, %(slots)s, now() + %(lease)s)
    ON CONFLICT (id) DO UPDATE SET seen_at = now(), slots = excluded.slots, alive_until = excluded.alive_until

-- name: leave
DELETE FROM workers WHERE id = %(id)s

-- name: forget_silent
DELETE FROM workers WHERE seen_at < now() - %(silent_for)s
