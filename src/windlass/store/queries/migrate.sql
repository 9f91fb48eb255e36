-- name: has_tables
SELECT to_regclass('migrations') IS NOT NULL AS has_tables

-- name: applied
SELECT number FROM migrations

-- name: settings
SELECT name, value FROM settings WHERE name = ANY(%(names)s)

-- name: set
INSERT INTO settings (name, value) VALUES (%(name)s, %(value)s)
    ON CONFLICT (name) DO UPDATE SET value = excluded.value WHERE settings.value <> excluded.value
