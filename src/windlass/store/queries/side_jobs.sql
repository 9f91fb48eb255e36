-- name: migrations
SELECT name FROM side_job_migrations

-- name: note_migrations
INSERT INTO side_job_migrations (name) SELECT unnest(%(names)s::text[])
