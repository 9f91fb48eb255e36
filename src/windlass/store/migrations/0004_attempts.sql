-- A finished step of a run. Later attempts do not run it again.
CREATE TABLE journal (
    kickoff_id uuid NOT NULL,
    number     integer NOT NULL,
    attempt    integer NOT NULL,
    key        text NOT NULL,
    position   integer,  -- the position of its task record
    apart      boolean NOT NULL DEFAULT false,  -- the output is stored only in the task record
    record     text NOT NULL,  -- encrypted
    written_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (kickoff_id, number)
);

CREATE TABLE attempts (
    kickoff_id uuid NOT NULL,
    attempt    integer NOT NULL,
    worker_id  uuid NOT NULL,
    host       text NOT NULL,
    started_at timestamptz NOT NULL DEFAULT now(),
    restored   integer NOT NULL DEFAULT 0,  -- the number of journal entries at its start
    ended_at   timestamptz,
    ended_as   text,  -- the final state of the kickoff; if the kickoff went on: 'lost', 'released' or 'retried'
    why        text,
    PRIMARY KEY (kickoff_id, attempt)
);

ALTER TABLE kickoffs
    ADD retries integer NOT NULL DEFAULT 0,  -- failed attempts after which the kickoff ran again
    ADD why     text,  -- why its last run ended without ending the kickoff
    ADD model_calls integer NOT NULL DEFAULT 0,  -- calls that were started, by all attempts
    ADD alone   boolean NOT NULL DEFAULT false;  -- a process was lost: the zygote of its next process serves no other kickoff

ALTER TABLE task_records ADD attempt integer;  -- the attempt that runs or ran the task; NULL: none yet
