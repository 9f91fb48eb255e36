-- The system users that the crews of a root's server run as, one for each deployment, the same on all servers.
CREATE TABLE crew_users (
    number        integer PRIMARY KEY,
    deployment_id uuid UNIQUE REFERENCES deployments ON DELETE SET NULL,  -- NULL: its deployment is gone
    given_at      timestamptz NOT NULL DEFAULT now()
);
