-- What the runs of kickoffs ask people. A question waits for an answer until it has `answered_at` or `closed_at`.
CREATE TABLE questions (
    id            uuid PRIMARY KEY,  -- the task_id of POST /resume
    kickoff_id    uuid NOT NULL,
    number        integer NOT NULL,  -- of its entry in the journal
    key           text NOT NULL,
    deployment_id uuid NOT NULL,
    attempt       integer NOT NULL,  -- the attempt that asked
    position      integer,  -- the position of its task record
    method        text,  -- of a flow
    question      text NOT NULL,
    draft         json NOT NULL,  -- the text that the person judges
    choices       json NOT NULL DEFAULT '[]',  -- the words that decide
    waits         boolean NOT NULL,  -- its process waits alive for the answer
    asked_at      timestamptz NOT NULL DEFAULT now(),
    expires_at    timestamptz,
    remind_every  interval,
    remind_at     timestamptz,  -- when its webhook is called again
    on_timeout    text,  -- fail, approve, reject or one of the choices
    closed_at     timestamptz,  -- when it could not be answered any more: its kickoff ended, or it was asked again
    answered_at   timestamptz,
    answered_by   text,  -- in words that stay when the user or the token is removed
    approved      boolean,
    feedback      text,
    answer_key    text,  -- the idempotency key of the answer
    answer_digest bytea
);

CREATE UNIQUE INDEX questions_of_kickoff ON questions (kickoff_id, key);

-- Indexes of the questions that wait: all, those of a deployment, those with a time limit, and those with a reminder.
CREATE INDEX questions_open ON questions (id) WHERE answered_at IS NULL AND closed_at IS NULL;
CREATE INDEX questions_open_of_deployment ON questions (deployment_id, id) WHERE answered_at IS NULL AND closed_at IS NULL;
CREATE INDEX questions_expiring ON questions (expires_at) WHERE answered_at IS NULL AND closed_at IS NULL AND expires_at IS NOT NULL;
CREATE INDEX questions_reminding ON questions (remind_at) WHERE answered_at IS NULL AND closed_at IS NULL AND remind_at IS NOT NULL;

ALTER TABLE kickoffs
    ADD COLUMN asked boolean NOT NULL DEFAULT false,  -- it has questions
    ADD COLUMN paused_at timestamptz,  -- since when it waits for a person; NULL again when a run goes on
    ADD COLUMN paused_for interval NOT NULL DEFAULT '0';  -- the sum of such times: they count neither as run time nor against `timeout`

DROP FUNCTION IF EXISTS reopen_tasks(uuid);
