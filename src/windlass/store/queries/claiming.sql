-- name: claim
SELECT id, content FROM claim_and_read(%(worker)s, %(host)s, %(slots)s, %(lease)s, %(only)s, %(ended)s, %(recent)s, %(excluded)s)

-- name: claimed
SELECT id, content FROM read_claimed(%(ids)s, %(worker)s)

-- name: earlier_records
-- Returns the task records at the start of a later attempt, without their outputs, which may be hundreds of megabytes. Tasks in the journal
-- are completed; the others keep their execution time so far.
SELECT position, task_id, key, name, agent, state, registered, execution_time,
       extract(epoch FROM started_at)::float8 AS started_at, extract(epoch FROM finished_at)::float8 AS finished_at
  FROM task_records
 WHERE kickoff_id = %(kickoff)s
 ORDER BY position

-- name: journal
-- Returns the next entries after the number %(after)s: at least one, and no further one beyond %(most)s bytes. An output counts 64 times its
-- stored size, because it may be compressed.
WITH next AS (
    SELECT number, journal.key, record, CASE WHEN output_elsewhere THEN task_records.output END AS output,
           octet_length(record)
             + CASE WHEN output_elsewhere THEN 64 * coalesce(pg_column_size(task_records.output), 0) ELSE 0 END AS bytes
      FROM journal
      LEFT JOIN task_records USING (kickoff_id, position)
     WHERE kickoff_id = %(kickoff)s AND number > %(after)s
     ORDER BY number
     LIMIT %(limit)s
), summed AS (
    SELECT next.*, sum(bytes) OVER (ORDER BY number) AS so_far FROM next
)
SELECT number, key, record, output FROM summed WHERE so_far - bytes < %(most)s ORDER BY number

-- name: renew
-- Renews only kickoffs that this worker still holds. A row that is missing in the answer is no longer the worker's. The worker does not
-- name kickoffs that it no longer runs, so their leases end.
UPDATE kickoffs
   SET lease_until = clock_timestamp() + %(lease)s
 WHERE id = ANY (%(kickoffs)s) AND worker_id = %(worker)s AND state = 'STARTED'
RETURNING id, attempt, stop_requested_at IS NOT NULL AS stop_requested

-- name: renew_unlocked
-- As `renew`, but waits for no lock. The write of a large output locks the row of its kickoff for seconds; a statement that waits for it
-- would let the leases of the worker's other kickoffs end. Such a row is returned with `renewed` = false.
WITH unlocked AS (
    SELECT id
      FROM kickoffs
     WHERE id = ANY (%(kickoffs)s) AND worker_id = %(worker)s AND state = 'STARTED'
       FOR NO KEY UPDATE SKIP LOCKED
), renewed AS (
    UPDATE kickoffs SET lease_until = clock_timestamp() + %(lease)s FROM unlocked WHERE kickoffs.id = unlocked.id
    RETURNING kickoffs.id
)
SELECT kickoffs.id, attempt, stop_requested_at IS NOT NULL AS stop_requested, renewed.id IS NOT NULL AS renewed
  FROM kickoffs
  LEFT JOIN renewed ON renewed.id = kickoffs.id
 WHERE kickoffs.id = ANY (%(kickoffs)s) AND worker_id = %(worker)s AND state = 'STARTED'

-- name: promote_due
-- A kickoff with a concurrency key then waits for its key.
WITH due AS (
    SELECT first.id
      FROM deployments
     CROSS JOIN LATERAL (
           SELECT id
             FROM kickoffs
            WHERE deployment_id = deployments.id AND state = 'PENDING' AND NOT ready AND run_at <= now()
            ORDER BY run_at
            LIMIT %(limit)s
              FOR UPDATE SKIP LOCKED
           ) AS first
), promoted AS (
    UPDATE kickoffs
       SET ready = concurrency_key IS NULL, run_at = NULL, due_at = CASE attempt WHEN 0 THEN run_at ELSE due_at END
      FROM due
     WHERE kickoffs.id = due.id
    RETURNING kickoffs.id
)
SELECT count(*) AS promoted FROM promoted

-- name: promote_keys
-- The trigger follow_kickoff passes on a key when its holder ends. This statement is for losses, and for an end during the acceptance of
-- the next kickoff. It reads one page of keys, independent of the number of kickoffs that wait for each. `last` is the last key of a full
-- page, else NULL.
WITH RECURSIVE keys AS (
    (SELECT deployment_id, concurrency_key
       FROM kickoffs
      WHERE waits_for_key(kickoffs)
        AND (deployment_id, concurrency_key) > (%(deployment)s, %(key)s)
      ORDER BY deployment_id, concurrency_key
      LIMIT 1)
     UNION ALL
    SELECT next.*
      FROM keys
     CROSS JOIN LATERAL (
           SELECT kickoffs.deployment_id, kickoffs.concurrency_key
             FROM kickoffs
            WHERE waits_for_key(kickoffs)
              AND (kickoffs.deployment_id, kickoffs.concurrency_key) > (keys.deployment_id, keys.concurrency_key)
            ORDER BY kickoffs.deployment_id, kickoffs.concurrency_key
            LIMIT 1
           ) AS next
), page AS (
    SELECT * FROM keys LIMIT %(limit)s
), first AS (
    SELECT waiting.id
      FROM page
     CROSS JOIN LATERAL (
           SELECT id
             FROM kickoffs
            WHERE kickoffs.deployment_id = page.deployment_id AND kickoffs.concurrency_key = page.concurrency_key
              AND waits_for_key(kickoffs)
            ORDER BY priority DESC, id
            LIMIT 1
           ) AS waiting
     WHERE NOT key_is_held(page.deployment_id, page.concurrency_key)
), locked AS (
    SELECT kickoffs.id
      FROM kickoffs
      JOIN first USING (id)
     WHERE state = 'PENDING' AND NOT ready
       FOR UPDATE OF kickoffs SKIP LOCKED
), promoted AS (
    UPDATE kickoffs SET ready = true FROM locked WHERE kickoffs.id = locked.id
    RETURNING kickoffs.id
)
SELECT (SELECT count(*) FROM promoted) AS promoted,
       (SELECT json_build_array(deployment_id, concurrency_key) FROM page OFFSET %(limit)s - 1) AS last

-- name: worker_seen
INSERT INTO workers (id, host, pid, slots, deployments, excluded, version, running, zygotes, zygote_memory, boundary, alive_until)
VALUES (%(id)s, %(host)s, %(pid)s, %(slots)s, %(deployments)s, %(excluded)s, %(version)s, %(running)s, %(zygotes)s, %(zygote_memory)s,
        %(boundary)s, now() + %(lease)s)
    ON CONFLICT (id) DO UPDATE
   SET seen_at = now(), slots = excluded.slots, running = excluded.running, zygotes = excluded.zygotes,
       zygote_memory = excluded.zygote_memory, alive_until = excluded.alive_until

-- name: worker_left
DELETE FROM workers WHERE id = %(id)s

-- name: forget_silent_workers
DELETE FROM workers WHERE seen_at < now() - %(silent_for)s
