-- The names of procrastinate's migration files that are applied (store/side_job_tables.py).
CREATE TABLE side_job_migrations (
    name       text PRIMARY KEY,
    applied_at timestamptz NOT NULL DEFAULT now()
);

-- Retention searches ended kickoffs by the time of their end. The index costs one entry per kickoff, written at its end.
CREATE INDEX kickoffs_finished ON kickoffs (deployment_id, finished_at) WHERE finished_at IS NOT NULL;

-- The progress of retention: the events (or the journals) of the deployment's kickoffs that ended until `finished_at` are removed.
CREATE TABLE retention_progress (
    deployment_id uuid NOT NULL,
    what          text NOT NULL,
    finished_at   timestamptz NOT NULL,
    PRIMARY KEY (deployment_id, what)
);
