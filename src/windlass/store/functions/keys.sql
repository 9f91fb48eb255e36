-- See docs/decisions/queue.md#functions-do-not-use-views
-- See docs/decisions/queue.md#a-look-up-of-a-key-has-its-own-plan

-- Concurrency keys. Of the kickoffs of a deployment with the same key, one has its turn: it holds the key. The others wait for the key, by
-- priority, then age.

-- PENDING and `ready`: its turn has come, and it waits for a slot. The index kickoffs_key_held has the same condition.
CREATE OR REPLACE FUNCTION holds_key(kickoff kickoffs) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT kickoff.state = 'STARTED' OR kickoff.state = 'PENDING_HUMAN_INPUT' OR (kickoff.state = 'PENDING' AND kickoff.ready);
$$;

-- A kickoff with a `run_at` does not wait for its key yet. The index kickoffs_key_waiting has the same condition.
CREATE OR REPLACE FUNCTION waits_for_key(kickoff kickoffs) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT kickoff.concurrency_key IS NOT NULL AND kickoff.state = 'PENDING' AND NOT kickoff.ready AND kickoff.run_at IS NULL;
$$;

-- With `begun`, counts only holders that were claimed. The settings and the ORDER BY determine that the index kickoffs_key_held is read,
-- also where a session planned the query while the table was small.
CREATE OR REPLACE FUNCTION key_is_held(of_deployment uuid, held_key text, begun boolean DEFAULT false) RETURNS boolean
LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off
AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM (
            SELECT FROM kickoffs
             WHERE deployment_id = of_deployment AND concurrency_key = held_key AND holds_key(kickoffs) AND NOT (begun AND state = 'PENDING')
             ORDER BY priority DESC, id
             LIMIT 1) AS holder);
END
$$;

-- Gives a free key to the first kickoff that waits for it.
CREATE OR REPLACE FUNCTION give_turn(of_deployment uuid, freed_key text) RETURNS void LANGUAGE sql AS $$
    UPDATE kickoffs
       SET ready = true
     WHERE id = (SELECT id
                   FROM kickoffs
                  WHERE deployment_id = of_deployment AND concurrency_key = freed_key AND waits_for_key(kickoffs)
                  ORDER BY priority DESC, id
                  LIMIT 1
                    FOR UPDATE SKIP LOCKED)
       AND NOT key_is_held(of_deployment, freed_key);
$$;
