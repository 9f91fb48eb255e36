ALTER TABLE deployments
    ADD paused_at            timestamptz,
    ADD weight               real NOT NULL DEFAULT 1 CHECK (weight > 0),  -- its share of the slots, against those of others
    ADD concurrency          integer CHECK (concurrency >= 1),  -- NULL: as many at once as there are slots
    ADD max_waiting          integer CHECK (max_waiting >= 1),  -- NULL: the server's default
    ADD concurrency_strategy text NOT NULL DEFAULT 'enqueue' CHECK (concurrency_strategy IN ('enqueue', 'reject', 'cancel_running'));

-- `ready` keeps what can't be claimed yet out of the index that claims read. A kickoff that is PENDING and not ready waits for its time
-- (`run_at`, NULL once that has come) or for another one with its key.
ALTER TABLE kickoffs
    ADD priority          smallint NOT NULL DEFAULT 0,
    ADD run_at            timestamptz,
    ADD ready             boolean NOT NULL DEFAULT true,
    ADD concurrency_key   text,
    ADD limits            json,
    ADD stop_requested_at timestamptz,
    ADD waiting_for       text,  -- what its worker says that it waits for: 'zygote'
    ADD CHECK (run_at IS NULL OR NOT ready);

DROP INDEX kickoffs_pending;
CREATE INDEX kickoffs_ready ON kickoffs (deployment_id, priority DESC, id) WHERE state = 'PENDING' AND ready;
CREATE INDEX kickoffs_not_ready ON kickoffs (deployment_id, run_at) WHERE state = 'PENDING' AND NOT ready;

-- Of the kickoffs with one key: all that are open; those whose turn it is; those that wait for their turn, in its order.
CREATE INDEX kickoffs_keyed ON kickoffs (deployment_id, concurrency_key)
 WHERE concurrency_key IS NOT NULL AND state IN ('PENDING', 'STARTED', 'PENDING_HUMAN_INPUT');
CREATE INDEX kickoffs_key_held ON kickoffs (deployment_id, concurrency_key, priority DESC, id)
 WHERE concurrency_key IS NOT NULL AND (state = 'STARTED' OR state = 'PENDING_HUMAN_INPUT' OR (state = 'PENDING' AND ready));
CREATE INDEX kickoffs_key_waiting ON kickoffs (deployment_id, concurrency_key, priority DESC, id)
 WHERE concurrency_key IS NOT NULL AND state = 'PENDING' AND NOT ready AND run_at IS NULL;

CREATE TABLE workers (
    id          uuid PRIMARY KEY,
    host        text NOT NULL,
    pid         integer NOT NULL,
    slots       integer NOT NULL,
    started_at  timestamptz NOT NULL DEFAULT now(),
    seen_at     timestamptz NOT NULL DEFAULT now(),
    alive_until timestamptz NOT NULL  -- by its own word: it is seen again before, or it is dead
);

CREATE VIEW registered_tasks AS
SELECT versions.id AS version_id, ordinality::int - 1 AS position, given ->> 'task_id' AS task_id, given ->> 'key' AS key,
       given ->> 'name' AS name, given ->> 'agent' AS agent
  FROM versions
 CROSS JOIN LATERAL json_array_elements(versions.manifest -> 'tasks') WITH ORDINALITY AS listed (given, ordinality);
