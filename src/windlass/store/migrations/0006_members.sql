-- Who sees a deployment, and which deployments and roles may use a credential. The locks of tables that requests read most come last.

-- Existing credentials stay usable for every developer. The server gives new ones a value of its own.
ALTER TABLE credentials ADD COLUMN roles text[] NOT NULL DEFAULT '{developer}';
ALTER TABLE credentials ADD COLUMN deployment_ids uuid[] NOT NULL DEFAULT '{}';

-- The role of the person who chose the source of the value. Of variables that were set before, it is not known.
ALTER TABLE variables ADD COLUMN set_as text NOT NULL DEFAULT 'developer';

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
