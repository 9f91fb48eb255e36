-- The statistics of the last 24 hours. A side job counts the kickoffs since `counted_until` once a minute (store/statistics.py), so that no
-- move of a kickoff changes a row that others change too. Times are those of PostgreSQL's clock, hours and minutes those of UTC.
CREATE TABLE statistics_progress (
    counted_until timestamptz NOT NULL
);

INSERT INTO statistics_progress (counted_until)
SELECT CASE WHEN EXISTS (SELECT FROM kickoffs) THEN date_trunc('hour', now() - interval '24 hours', 'UTC') ELSE now() END;

CREATE TABLE statistics_hours (
    deployment_id uuid NOT NULL REFERENCES deployments ON DELETE CASCADE,
    hour          timestamptz NOT NULL,
    ended         integer NOT NULL,
    succeeded     integer NOT NULL,
    failed        integer NOT NULL,  -- FAILED and TIMED_OUT
    PRIMARY KEY (deployment_id, hour)
);

-- Run durations of kickoffs that ended in the hour. The function duration_bucket has the limits of the buckets.
CREATE TABLE statistics_durations (
    deployment_id uuid NOT NULL REFERENCES deployments ON DELETE CASCADE,
    hour          timestamptz NOT NULL,
    bucket        smallint NOT NULL,
    count         integer NOT NULL,
    PRIMARY KEY (deployment_id, hour, bucket)
);

-- Of all deployments.
CREATE TABLE statistics_minutes (
    minute   timestamptz PRIMARY KEY,
    accepted integer NOT NULL,
    started  integer NOT NULL,  -- for the first time
    ended    integer NOT NULL,
    failed   integer NOT NULL
);

-- Times from the acceptance of a kickoff, or from the time when it was due, to its first start.
CREATE TABLE statistics_waits (
    minute timestamptz NOT NULL,
    bucket smallint NOT NULL,
    count  integer NOT NULL,
    PRIMARY KEY (minute, bucket)
);

-- The newest failure of each deployment. Only failed kickoffs have an entry.
CREATE INDEX kickoffs_failed ON kickoffs (deployment_id, finished_at) WHERE state IN ('FAILED', 'TIMED_OUT');

CREATE INDEX attempts_first_started ON attempts (started_at) WHERE attempt = 1;

-- The `run_at` of a kickoff that waited for a time, when that time was reached.
ALTER TABLE kickoffs ADD due_at timestamptz;

-- Reported by the worker with its heartbeat; NULL from a worker of an older version.
ALTER TABLE workers
    ADD version       text,
    ADD running       integer,
    ADD zygotes       integer,
    ADD zygote_memory bigint;  -- bytes
