-- What is done of procrastinate's own statements (store/side_job_tables.py): the names of its files.
CREATE TABLE side_job_migrations (
    name       text PRIMARY KEY,
    applied_at timestamptz NOT NULL DEFAULT now()
);

-- For retention: what ended, by when. The hot path pays one entry, at the end of a kickoff.
CREATE INDEX kickoffs_finished ON kickoffs (deployment_id, finished_at) WHERE finished_at IS NOT NULL;

-- How far retention has come: of the deployment's kickoffs that ended by then, the events (or the journals) are gone.
CREATE TABLE retention_progress (
    deployment_id uuid NOT NULL,
    what          text NOT NULL,
    finished_at   timestamptz NOT NULL,
    PRIMARY KEY (deployment_id, what)
);
