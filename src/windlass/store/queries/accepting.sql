-- See docs/decisions/queue.md#a-users-share-of-a-queue-is-counted-only-near-the-limit
-- See docs/decisions/store.md#look-ups-by-id-have-a-fixed-join-order

-- Arrays are sent in binary form, %(...)b: in text form, quoting inputs of 20 MB keeps the server busy for seconds.

-- Both statements store a batch at once: one commit, one notification. A row whose idempotency key is in use inserts nothing. The idempotency
-- keys of a batch must be distinct: INSERT ... ON CONFLICT can't change a row twice. The starts of persons go into the audit log. The
-- endpoints of webhooks are distinct too.

-- name: accept_all
-- For batches without concurrency keys, for deployments whose queues are known to have room.
WITH given AS (
    SELECT *
      FROM unnest(
           %(ids)b::uuid[], %(deployments)b::uuid[], %(versions)b::uuid[], %(users)b::uuid[], %(inputs)b::text[], %(metas)b::text[],
           %(warnings)b::text[], %(keys)b::text[], %(digests)b::bytea[], %(priorities)b::int[],
           %(run_ats)b::timestamptz[], %(concurrency_keys)b::text[], %(strategies)b::text[], %(limits)b::text[],
           %(starters)b::text[]
         ) WITH ORDINALITY
           AS row (id, deployment_id, version_id, user_id, inputs, meta, warnings, key, digest, priority, run_at, concurrency_key,
                   strategy, limits, started_by, place)
), reserved AS (
    INSERT INTO idempotency_keys (deployment_id, principal, key, request_digest, kickoff_id, expires_at)
    SELECT deployment_id, coalesce(user_id, deployment_id), key, digest, id, now() + %(keep)s
      FROM given
     WHERE key IS NOT NULL
     ORDER BY deployment_id, coalesce(user_id, deployment_id), key  -- the same order in each batch, to avoid deadlocks
        ON CONFLICT (deployment_id, principal, key) DO UPDATE
       SET request_digest = excluded.request_digest, kickoff_id = excluded.kickoff_id, expires_at = excluded.expires_at
     WHERE idempotency_keys.expires_at <= now()
    RETURNING kickoff_id
), new AS (
    SELECT given.*, CASE WHEN run_at > now() THEN run_at END AS not_before
      FROM given
     WHERE key IS NULL OR id IN (SELECT kickoff_id FROM reserved)
), accepted AS (
    INSERT INTO kickoffs (id, deployment_id, version_id, user_id, inputs, meta, warnings, priority, run_at, ready, concurrency_key,
                          limits, started_by)
    SELECT id, deployment_id, version_id, user_id, inputs::json, meta::json, warnings::json, priority, not_before, not_before IS NULL,
           concurrency_key, limits::json, started_by
      FROM new
    RETURNING id, deployment_id
), recorded AS (
    INSERT INTO audit_log (id, user_id, "user", token_id, action, target, details, address)
    SELECT entry, by_user, by_name, by_token, 'kickoff.start', accepted.id::text,
           json_build_object('deployment', (SELECT slug FROM deployments WHERE deployments.id = accepted.deployment_id)), by_address
      FROM unnest(%(started)b::uuid[], %(entries)b::uuid[], %(by_users)b::uuid[], %(by_names)b::text[], %(by_tokens)b::uuid[],
                  %(by_addresses)b::text[])
           AS started (kickoff, entry, by_user, by_name, by_token, by_address)
      JOIN accepted ON accepted.id = started.kickoff
), endpoints AS (
    INSERT INTO webhook_endpoints (id, deployment_id, host, address)
    SELECT id, deployment_id, host, address
      FROM unnest(%(endpoints)b::uuid[], %(endpoint_deployments)b::uuid[], %(hosts)b::text[], %(addresses)b::text[])
           AS endpoint (id, deployment_id, host, address)
     ORDER BY id
        ON CONFLICT (id) DO NOTHING
), hooked AS (
    INSERT INTO webhooks (kickoff_id, endpoint_id, hooks, types)
    SELECT kickoff, endpoint, hooks::json, string_to_array(types, ',')
      FROM unnest(%(hooked)b::uuid[], %(hook_endpoints)b::uuid[], %(hooks)b::text[], %(hook_types)b::text[])
           AS webhook (kickoff, endpoint, hooks, types)
      JOIN accepted ON accepted.id = webhook.kickoff
)
SELECT (SELECT array_agg(id) FROM accepted) AS accepted, pg_notify('windlass_kickoffs', '')

-- name: accept_what_fits
-- For any batch. A row that inserts nothing is returned in `full` or `taken`, or else its idempotency key belongs to an earlier kickoff. The
-- concurrency keys of a batch must also be distinct, except for "enqueue": rows of one batch don't see each other.
WITH given AS (
    SELECT *
      FROM unnest(
           %(ids)b::uuid[], %(deployments)b::uuid[], %(versions)b::uuid[], %(users)b::uuid[], %(inputs)b::text[], %(metas)b::text[],
           %(warnings)b::text[], %(keys)b::text[], %(digests)b::bytea[], %(priorities)b::int[],
           %(run_ats)b::timestamptz[], %(concurrency_keys)b::text[], %(strategies)b::text[], %(limits)b::text[],
           %(starters)b::text[]
         ) WITH ORDINALITY
           AS row (id, deployment_id, version_id, user_id, inputs, meta, warnings, key, digest, priority, run_at, concurrency_key,
                   strategy, limits, started_by, place)
), bounded AS (
    SELECT given.*, coalesce(given.strategy, deployments.concurrency_strategy) AS chosen_strategy,
           coalesce(deployments.max_waiting, %(max_waiting)s) AS most,
           greatest(1, floor(coalesce(deployments.max_waiting, %(max_waiting)s) * %(user_share)s))::int AS most_of_user
      FROM given
      LEFT JOIN deployments ON deployments.id = given.deployment_id
), taken AS (
    SELECT bounded.id, holder.id AS holder, holder.user_id AS holder_user
      FROM bounded
     CROSS JOIN LATERAL (
           SELECT kickoffs.id, kickoffs.user_id
             FROM kickoffs
            WHERE kickoffs.deployment_id = bounded.deployment_id AND kickoffs.concurrency_key = bounded.concurrency_key
              AND kickoffs.state IN ('PENDING', 'STARTED', 'PENDING_HUMAN_INPUT')
            LIMIT 1
           ) AS holder
     WHERE bounded.chosen_strategy = 'reject'
), backlogs AS MATERIALIZED (  -- counted once per deployment, up to the limit
    SELECT deployment_id, most, most_of_user,
           (SELECT count(*)
              FROM (SELECT FROM kickoffs WHERE deployment_id = queue.deployment_id AND state = 'PENDING' AND ready LIMIT most) AS ready)
         + (SELECT count(*)
              FROM (SELECT FROM kickoffs WHERE deployment_id = queue.deployment_id AND state = 'PENDING' AND NOT ready LIMIT most) AS other)
           AS waiting
      FROM (SELECT DISTINCT deployment_id, most, most_of_user FROM bounded) AS queue
), backlogs_of_users AS MATERIALIZED (
    SELECT deployment_id, user_id,
           (SELECT count(*)
              FROM (SELECT
                      FROM kickoffs
                     WHERE deployment_id = own.deployment_id AND user_id = own.user_id AND state = 'PENDING'
                     LIMIT most_of_user) AS waiting) AS waiting
      FROM (SELECT DISTINCT deployment_id, user_id, most_of_user FROM bounded WHERE user_id IS NOT NULL) AS own
), fresh AS (
    SELECT bounded.*, backlogs_of_users.waiting AS waiting_of_user,
           bounded.user_id IS NULL OR backlogs_of_users.waiting
             + row_number() OVER (PARTITION BY bounded.deployment_id, bounded.user_id ORDER BY place) <= most_of_user AS within_share
      FROM bounded
      LEFT JOIN backlogs_of_users USING (deployment_id, user_id)
      LEFT JOIN LATERAL (
           SELECT expires_at
             FROM idempotency_keys
            WHERE idempotency_keys.deployment_id = bounded.deployment_id
              AND idempotency_keys.principal = coalesce(bounded.user_id, bounded.deployment_id) AND idempotency_keys.key = bounded.key
            LIMIT 1
           ) AS known ON bounded.key IS NOT NULL
     WHERE id NOT IN (SELECT id FROM taken) AND coalesce(known.expires_at <= now(), true)
), counted AS (  -- rows beyond a user's share use no room of the queue
    SELECT fresh.*, waiting,
           within_share
             AND waiting + count(*) FILTER (WHERE within_share) OVER (PARTITION BY deployment_id ORDER BY place) <= fresh.most AS fits
      FROM fresh
      JOIN backlogs USING (deployment_id)
), admitted AS (
    SELECT * FROM counted WHERE fits
), reserved AS (
    INSERT INTO idempotency_keys (deployment_id, principal, key, request_digest, kickoff_id, expires_at)
    SELECT deployment_id, coalesce(user_id, deployment_id), key, digest, id, now() + %(keep)s
      FROM admitted
     WHERE key IS NOT NULL
     ORDER BY deployment_id, coalesce(user_id, deployment_id), key  -- the same order in each batch, to avoid deadlocks
        ON CONFLICT (deployment_id, principal, key) DO UPDATE
       SET request_digest = excluded.request_digest, kickoff_id = excluded.kickoff_id, expires_at = excluded.expires_at
     WHERE idempotency_keys.expires_at <= now()
    RETURNING kickoff_id
), new AS (
    SELECT admitted.*, CASE WHEN run_at > now() THEN run_at END AS not_before
      FROM admitted
     WHERE key IS NULL OR id IN (SELECT kickoff_id FROM reserved)
), placed AS (
    SELECT new.*,
           not_before IS NULL AND (concurrency_key IS NULL OR (
               NOT key_is_held(new.deployment_id, concurrency_key) AND earlier.id IS NULL
               AND row_number() OVER (PARTITION BY new.deployment_id, concurrency_key, not_before IS NULL ORDER BY priority DESC, place) = 1
           )) AS ready
      FROM new
      LEFT JOIN LATERAL (
           SELECT kickoffs.id
             FROM kickoffs
            WHERE kickoffs.deployment_id = new.deployment_id AND kickoffs.concurrency_key = new.concurrency_key AND waits_for_key(kickoffs)
            LIMIT 1
           ) AS earlier ON new.concurrency_key IS NOT NULL
), accepted AS (
    INSERT INTO kickoffs (id, deployment_id, version_id, user_id, inputs, meta, warnings, priority, run_at, ready, concurrency_key,
                          limits, started_by)
    SELECT id, deployment_id, version_id, user_id, inputs::json, meta::json, warnings::json, priority, not_before, ready,
           concurrency_key, limits::json, started_by
      FROM placed
    RETURNING id, deployment_id
), recorded AS (
    INSERT INTO audit_log (id, user_id, "user", token_id, action, target, details, address)
    SELECT entry, by_user, by_name, by_token, 'kickoff.start', accepted.id::text,
           json_build_object('deployment', (SELECT slug FROM deployments WHERE deployments.id = accepted.deployment_id)), by_address
      FROM unnest(%(started)b::uuid[], %(entries)b::uuid[], %(by_users)b::uuid[], %(by_names)b::text[], %(by_tokens)b::uuid[],
                  %(by_addresses)b::text[])
           AS started (kickoff, entry, by_user, by_name, by_token, by_address)
      JOIN accepted ON accepted.id = started.kickoff
), endpoints AS (
    INSERT INTO webhook_endpoints (id, deployment_id, host, address)
    SELECT id, deployment_id, host, address
      FROM unnest(%(endpoints)b::uuid[], %(endpoint_deployments)b::uuid[], %(hosts)b::text[], %(addresses)b::text[])
           AS endpoint (id, deployment_id, host, address)
     ORDER BY id
        ON CONFLICT (id) DO NOTHING
), hooked AS (
    INSERT INTO webhooks (kickoff_id, endpoint_id, hooks, types)
    SELECT kickoff, endpoint, hooks::json, string_to_array(types, ',')
      FROM unnest(%(hooked)b::uuid[], %(hook_endpoints)b::uuid[], %(hooks)b::text[], %(hook_types)b::text[])
           AS webhook (kickoff, endpoint, hooks, types)
      JOIN accepted ON accepted.id = webhook.kickoff
)
SELECT (SELECT array_agg(id) FROM accepted) AS accepted, (SELECT json_agg(CASE WHEN within_share THEN json_build_array(id, waiting, most, false)
                             ELSE json_build_array(id, waiting_of_user, most_of_user, true) END)
          FROM counted
         WHERE NOT fits) AS full,
       (SELECT json_agg(json_build_array(deployment_id, most - waiting, most_of_user - waiting)) FROM backlogs) AS room,
       (SELECT json_agg(DISTINCT jsonb_build_array(deployment_id, user_id, most_of_user - waiting_of_user))
          FROM fresh
         WHERE user_id IS NOT NULL) AS room_of_users,
       (SELECT json_agg(json_build_array(id, holder, holder_user)) FROM taken) AS taken, pg_notify('windlass_kickoffs', '')

-- name: lock_keys
-- Locks in the order of the numbers, as each batch does. Otherwise two batches could deadlock.
SELECT count(pg_advisory_xact_lock(number))
  FROM (SELECT DISTINCT hashtextextended('concurrency key ' || name, 0) AS number
          FROM unnest(%(names)b::text[]) AS name
         ORDER BY number) AS numbers

-- name: supersede
-- For each accepted kickoff of the batch with the strategy "cancel_running": cancels the other open kickoffs with its key, or requests
-- their stop. A kickoff with a user token affects only kickoffs of that user. OFFSET 0 and the array force lookups by id and by key, also
-- with outdated statistics.
WITH newer AS MATERIALIZED (
    SELECT accepted.*
      FROM unnest(%(ids)b::uuid[], %(strategies)b::text[]) AS given (id, strategy)
     CROSS JOIN LATERAL (
           SELECT id, deployment_id, concurrency_key, user_id, started_by FROM kickoffs WHERE id = given.id AND concurrency_key IS NOT NULL OFFSET 0
           ) AS accepted
      JOIN deployments ON deployments.id = accepted.deployment_id
     WHERE coalesce(given.strategy, deployments.concurrency_strategy) = 'cancel_running'
), older AS (
    SELECT open.id, newer.started_by
      FROM newer
     CROSS JOIN LATERAL (
           SELECT kickoffs.id
             FROM kickoffs
            WHERE kickoffs.deployment_id = newer.deployment_id AND kickoffs.concurrency_key = newer.concurrency_key
              AND kickoffs.state IN ('PENDING', 'STARTED', 'PENDING_HUMAN_INPUT')
              AND kickoffs.id <> newer.id AND (newer.user_id IS NULL OR kickoffs.user_id = newer.user_id)
           OFFSET 0
           ) AS open
), asked AS (
    UPDATE kickoffs
       SET state = CASE kickoffs.state WHEN 'STARTED' THEN 'STARTED' ELSE 'CANCELLED' END,
           reason = CASE kickoffs.state WHEN 'STARTED' THEN NULL ELSE 'cancelled' END,
           finished_at = CASE kickoffs.state WHEN 'STARTED' THEN NULL ELSE now() END,
           error = CASE WHEN stop_requested_at IS NULL THEN %(error)s ELSE error END,
           stopped_by = CASE WHEN stop_requested_at IS NULL
                             THEN (SELECT older.started_by FROM older WHERE older.id = kickoffs.id LIMIT 1) ELSE stopped_by END,
           stop_requested_at = coalesce(stop_requested_at, now())
     WHERE id = ANY (ARRAY (SELECT id FROM older)) AND state IN ('PENDING', 'STARTED', 'PENDING_HUMAN_INPUT')
    RETURNING kickoffs.id, kickoffs.state
)
SELECT id, state, CASE state WHEN 'STARTED' THEN pg_notify('windlass_stops', id::text) END FROM asked

-- name: reserved
SELECT kickoff_id, request_digest
  FROM idempotency_keys
 WHERE deployment_id = %(deployment)s AND principal = %(principal)s AND key = %(key)s

-- name: forget_idempotency_keys
DELETE FROM idempotency_keys
 WHERE ctid = ANY (ARRAY (SELECT ctid FROM idempotency_keys WHERE expires_at <= now() LIMIT %(limit)s))
