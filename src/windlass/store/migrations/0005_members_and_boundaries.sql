-- Who sees a deployment, which deployments and roles may use a credential, the users of crews, and what separates them. The table that
-- requests use most is locked last, and once: a weaker lock of it, as a foreign key takes, would have to wait a second time.

-- Existing credentials stay usable for every developer. The server gives new ones a value of its own.
ALTER TABLE credentials ADD COLUMN roles text[] NOT NULL DEFAULT '{developer}';
ALTER TABLE credentials ADD COLUMN deployment_ids uuid[] NOT NULL DEFAULT '{}';

-- The role of the person who chose the source of the value. Of variables that were set before, it is not known.
ALTER TABLE variables ADD COLUMN set_as text NOT NULL DEFAULT 'developer';

-- What separates the runs of a worker: a list of kickoffs.boundary_parts.BoundaryPart. Empty for a worker of a former release.
ALTER TABLE workers ADD COLUMN boundary jsonb NOT NULL DEFAULT '[]';

-- true: only its members and the owners of the server see it. A server of an earlier release adds deployments that everybody sees.
ALTER TABLE deployments ADD COLUMN members_only boolean NOT NULL DEFAULT false;

CREATE TABLE members (
    deployment_id uuid NOT NULL REFERENCES deployments ON DELETE CASCADE,
    user_id       uuid NOT NULL REFERENCES users ON DELETE CASCADE,
    is_owner      boolean NOT NULL,
    added_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (deployment_id, user_id)
);

CREATE INDEX members_of_user ON members (user_id);

-- The system users that the crews of a root's server run as, one for each deployment, the same on all servers.
CREATE TABLE crew_users (
    number        integer PRIMARY KEY,
    deployment_id uuid UNIQUE REFERENCES deployments ON DELETE SET NULL,  -- NULL: its deployment is gone
    given_at      timestamptz NOT NULL DEFAULT now()
);
