-- name: has
-- A source that is damaged counts as missing, so that it is stored again. A build of the source may follow, so it stays for another day.
UPDATE sources SET used_at = now()
 WHERE digest = %(digest)s
   AND size = (SELECT sum(octet_length(bytes)) FROM source_chunks
                WHERE source_chunks.content = sources.content HAVING bool_and(source_chunks.sha256 = sha256(bytes)))
RETURNING digest

-- name: append
-- Its commit does not wait for the disk: the commit that adds the source does, and PostgreSQL writes its log in order.
WITH stored AS (
    INSERT INTO source_chunks (content, position, sha256, bytes) VALUES (%(content)s, %(position)s, %(sha256)b, %(bytes)b)
        ON CONFLICT DO NOTHING  -- a repeated write: the answer to the first one was lost
)
SELECT set_config('synchronous_commit', 'off', true)

-- name: add
-- Of several servers the last one counts. The chunks of the others have no source then, and are removed a day later.
INSERT INTO sources (digest, content, size, files) VALUES (%(digest)s, %(content)s, %(size)s, %(files)s)
    ON CONFLICT (digest) DO UPDATE SET content = excluded.content, size = excluded.size, used_at = now()

-- name: find
SELECT content, size FROM sources WHERE digest = %(digest)s

-- name: chunk
SELECT bytes, sha256 FROM source_chunks WHERE content = %(content)s AND position = %(position)s

-- name: drop_content
DELETE FROM source_chunks WHERE content = %(content)s

-- name: remove_unused
-- A source of an open build, or of a version, is used. A row that a concurrent build has just touched is checked again, and stays.
DELETE FROM sources
 WHERE used_at < %(before)s
   AND NOT EXISTS (SELECT FROM versions WHERE versions.snapshot = sources.digest)
   AND NOT EXISTS (SELECT FROM builds WHERE builds.snapshot = sources.digest AND builds.state IN ('queued', 'building'))
RETURNING digest

-- name: unlisted_content
-- The oldest content without a source: of a removed or replaced source, or of an addition that was interrupted.
SELECT content FROM source_chunks
 WHERE content < %(before)s
   AND NOT EXISTS (SELECT FROM sources WHERE sources.content = source_chunks.content)
 ORDER BY content LIMIT 1
