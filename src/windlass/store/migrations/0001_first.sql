-- Columns for arbitrary JSON from clients or crews have the type json. The type jsonb refuses "\u0000".

CREATE TABLE settings (
    name  text PRIMARY KEY,
    value text NOT NULL
);

CREATE TABLE users (
    id         uuid PRIMARY KEY,
    name       text NOT NULL UNIQUE,
    created_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE deployments (
    id              uuid PRIMARY KEY,
    slug            text NOT NULL UNIQUE,
    profile         text NOT NULL DEFAULT 'documented' CHECK (profile IN ('documented', 'live')),
    current_version uuid,
    created_at      timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE versions (
    id            uuid PRIMARY KEY,
    deployment_id uuid NOT NULL REFERENCES deployments,
    number        integer NOT NULL,
    digest        text NOT NULL,
    source        json NOT NULL,
    manifest      json NOT NULL,
    created_at    timestamptz NOT NULL DEFAULT now(),
    UNIQUE (deployment_id, number)
);

ALTER TABLE deployments ADD FOREIGN KEY (current_version) REFERENCES versions;

CREATE TABLE tokens (
    id            uuid PRIMARY KEY,
    kind          text NOT NULL CHECK (kind IN ('organization', 'user')),
    deployment_id uuid REFERENCES deployments,  -- NULL: all deployments
    user_id       uuid REFERENCES users,
    digest        bytea NOT NULL UNIQUE,
    last_four     text NOT NULL,
    profile       text CHECK (profile IN ('documented', 'live')),  -- NULL: the deployment's
    shown_copy    text,  -- the encrypted token; set only for the two tokens that a crew's page shows again
    created_at    timestamptz NOT NULL DEFAULT now(),
    expires_at    timestamptz,
    revoked_at    timestamptz,
    last_used_at  timestamptz,
    CHECK ((kind = 'user') = (user_id IS NOT NULL))
);

CREATE UNIQUE INDEX tokens_shown ON tokens (deployment_id, kind) WHERE shown_copy IS NOT NULL AND revoked_at IS NULL;

-- The tables from here on have no foreign keys: these would lock the deployment's row at every kickoff.
CREATE TABLE kickoffs (
    id            uuid PRIMARY KEY,  -- UUIDv7: ids are in the order of acceptance
    deployment_id uuid NOT NULL,
    version_id    uuid NOT NULL,
    user_id       uuid,  -- the user whose token started the kickoff
    state         text NOT NULL DEFAULT 'PENDING',
    reason        text,
    error         text,
    attempt       integer NOT NULL DEFAULT 0,  -- the fencing number: each write of a run names it
    losses        integer NOT NULL DEFAULT 0,
    inputs        json NOT NULL,
    meta          json,
    unacted       json,  -- members of the request that this release stores but does not use
    warnings      json NOT NULL DEFAULT '[]',
    output        json,
    structured    json,
    token_usage   json,
    worker_id     uuid,
    lease_until   timestamptz,
    created_at    timestamptz NOT NULL DEFAULT now(),
    started_at    timestamptz,
    finished_at   timestamptz
);

CREATE INDEX kickoffs_pending ON kickoffs (id) WHERE state = 'PENDING';
CREATE INDEX kickoffs_leased ON kickoffs (lease_until) WHERE state = 'STARTED';
CREATE INDEX kickoffs_of_deployment ON kickoffs (deployment_id, id DESC);

CREATE TABLE task_records (
    kickoff_id     uuid NOT NULL,
    position       integer NOT NULL,
    task_id        text NOT NULL,
    key            text NOT NULL,
    name           text,
    agent          text,
    state          text NOT NULL,
    registered     boolean NOT NULL DEFAULT true,
    output         json,
    execution_time double precision,
    started_at     timestamptz,
    finished_at    timestamptz,
    PRIMARY KEY (kickoff_id, position)
);

CREATE TABLE events (
    kickoff_id uuid NOT NULL,
    seq        bigint NOT NULL,
    attempt    integer NOT NULL,
    type       text NOT NULL,
    at         timestamptz NOT NULL,
    payload    json NOT NULL,
    PRIMARY KEY (kickoff_id, seq)
);

CREATE TABLE idempotency_keys (
    deployment_id  uuid NOT NULL,
    principal      uuid NOT NULL,  -- the user; for organization tokens the deployment
    key            text NOT NULL,
    request_digest bytea NOT NULL,
    kickoff_id     uuid NOT NULL,
    expires_at     timestamptz NOT NULL,
    PRIMARY KEY (deployment_id, principal, key)
);

CREATE INDEX idempotency_keys_expiry ON idempotency_keys (expires_at);
