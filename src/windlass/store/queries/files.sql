-- See docs/decisions/store.md#the-number-of-files-is-a-column-of-kickoffs

-- Files are listed only after all of their parts are stored: `append` comes before `apply`, which is in one transaction with the journal
-- entry or the end of the run.

-- name: append
-- Writes nothing, and returns no row, when the kickoff has gone on to another attempt or has ended. Its commit does not wait for the disk:
-- the later commit that lists the file does, and writes the log of PostgreSQL in order.
WITH live AS (
    SELECT id FROM kickoffs WHERE id = %(kickoff)s AND attempt = %(attempt)s AND state = 'STARTED' FOR SHARE
), stored AS (
    INSERT INTO file_chunks (kickoff_id, content, position, bytes)
    SELECT live.id, %(content)s, %(position)s, %(bytes)b FROM live
        ON CONFLICT DO NOTHING  -- a repeated write: the answer to the first one was lost
)
SELECT id, set_config('synchronous_commit', 'off', true) FROM live

-- name: apply
-- The caller has checked in this transaction that the kickoff still has the attempt, and holds the lock of its row.
WITH put AS (
    INSERT INTO files (kickoff_id, path, size, sha256, media_type, content)
    SELECT %(kickoff)s, file.path, file.size, file.sha256, file.media_type, file.content
      FROM unnest(%(paths)b::text[], %(sizes)b::bigint[], %(digests)b::bytea[], %(media_types)b::text[], %(contents)b::uuid[])
             AS file (path, size, sha256, media_type, content)
        ON CONFLICT (kickoff_id, path) DO UPDATE
       SET size = excluded.size, sha256 = excluded.sha256, media_type = excluded.media_type, content = excluded.content, stored_at = now()
), gone AS (
    DELETE FROM files WHERE kickoff_id = %(kickoff)s AND path = ANY (%(gone)b::text[])
), unused AS (
    DELETE FROM file_chunks WHERE kickoff_id = %(kickoff)s AND content = ANY (%(unused)b::uuid[])
)
UPDATE kickoffs SET file_count = %(count)s WHERE id = %(kickoff)s

-- name: drop_contents
DELETE FROM file_chunks WHERE kickoff_id = %(kickoff)s AND content = ANY (%(contents)b::uuid[])

-- name: resume
-- Returns the files of finished steps. Removes the parts that an earlier attempt stored for files that it did not list.
WITH live AS (
    SELECT id FROM kickoffs WHERE id = %(kickoff)s AND attempt = %(attempt)s AND state = 'STARTED' FOR SHARE
), leftovers AS (
    DELETE FROM file_chunks
     WHERE kickoff_id = (SELECT id FROM live)
       AND NOT EXISTS (SELECT FROM files WHERE files.kickoff_id = file_chunks.kickoff_id AND files.content = file_chunks.content)
)
SELECT path, size, sha256, media_type, content FROM files WHERE kickoff_id = (SELECT id FROM live) ORDER BY path

-- name: list
SELECT path, size, sha256, media_type, content FROM files WHERE kickoff_id = %(kickoff)s ORDER BY path

-- name: find
SELECT path, size, sha256, media_type, content FROM files WHERE kickoff_id = %(kickoff)s AND path = %(path)s

-- name: chunk
SELECT bytes FROM file_chunks WHERE kickoff_id = %(kickoff)s AND content = %(content)s AND position = %(position)s
