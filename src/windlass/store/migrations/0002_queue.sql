ALTER TABLE deployments
    ADD paused_at            timestamptz,
    ADD weight               real NOT NULL DEFAULT 1 CHECK (weight > 0),  -- its share of the slots, relative to other deployments
    ADD concurrency          integer CHECK (concurrency >= 1),  -- NULL: limited only by the slots
    ADD max_waiting          integer CHECK (max_waiting >= 1),  -- NULL: the server's default
    ADD concurrency_strategy text NOT NULL DEFAULT 'enqueue' CHECK (concurrency_strategy IN ('enqueue', 'reject', 'cancel_running'));

-- The index that claims read contains only kickoffs that are `ready`. A kickoff that is PENDING and not ready waits for `run_at`, which is
-- set to NULL when its time is reached, or for another kickoff with the same concurrency key.
ALTER TABLE kickoffs
    ADD priority          smallint NOT NULL DEFAULT 0,
    ADD run_at            timestamptz,
    ADD ready             boolean NOT NULL DEFAULT true,
    ADD concurrency_key   text,
    ADD limits            json,
    ADD stop_requested_at timestamptz,
    ADD waiting_for       text,  -- reported by its worker: 'zygote'
    ADD CHECK (run_at IS NULL OR NOT ready);

DROP INDEX kickoffs_pending;
CREATE INDEX kickoffs_ready ON kickoffs (deployment_id, priority DESC, id) WHERE state = 'PENDING' AND ready;
CREATE INDEX kickoffs_not_ready ON kickoffs (deployment_id, run_at) WHERE state = 'PENDING' AND NOT ready;

-- Three indexes of the kickoffs with a concurrency key: all open ones; those that hold the key; those that wait for it, in their order.
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
    alive_until timestamptz NOT NULL  -- promised by the worker: without a further report until then it is dead
);
