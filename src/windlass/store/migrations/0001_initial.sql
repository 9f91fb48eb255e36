-- Columns for arbitrary JSON from clients or crews have the type json. The type jsonb refuses "\u0000".

CREATE TABLE settings (
    name  text PRIMARY KEY,
    value text NOT NULL
);

-- Cloud providers know the organization of this server by this id.
INSERT INTO settings (name, value) VALUES ('organization_id', gen_random_uuid()::text);

-- People

CREATE TABLE users (
    id            uuid PRIMARY KEY,
    name          text NOT NULL UNIQUE,
    role          text CHECK (role IN ('owner', 'developer', 'viewer')),  -- NULL: no access to the control API
    password_hash text,  -- argon2id, with its parameters. NULL: the user signs in by a link or by OpenID Connect
    created_at    timestamptz NOT NULL DEFAULT now(),
    disabled_at   timestamptz  -- no token of a disabled user is accepted
);

-- People who are signed in to the dashboard. The cookie's text is stored as a keyed digest only.
CREATE TABLE sessions (
    id         uuid PRIMARY KEY,
    digest     bytea NOT NULL UNIQUE,
    user_id    uuid NOT NULL REFERENCES users ON DELETE CASCADE,
    method     text NOT NULL,  -- link, password or oidc
    address    text,           -- of the client, at the sign-in
    agent      text,           -- the browser, as it names itself
    created_at timestamptz NOT NULL DEFAULT now(),
    seen_at    timestamptz NOT NULL DEFAULT now()
);

CREATE INDEX sessions_of_user ON sessions (user_id);

-- Links that sign a person in once.
CREATE TABLE sign_in_links (
    digest     bytea PRIMARY KEY,
    user_id    uuid NOT NULL REFERENCES users ON DELETE CASCADE,
    expires_at timestamptz NOT NULL
);

-- People who sign in with OpenID Connect: the provider's name for each of them.
CREATE TABLE sign_in_identities (
    issuer       text NOT NULL,
    subject      text NOT NULL,
    user_id      uuid NOT NULL REFERENCES users ON DELETE CASCADE,
    created_at   timestamptz NOT NULL DEFAULT now(),
    signed_in_at timestamptz NOT NULL DEFAULT now(),  -- the last time
    PRIMARY KEY (issuer, subject)
);

CREATE INDEX sign_in_identities_of_user ON sign_in_identities (user_id);

CREATE TABLE audit_log (
    id       uuid PRIMARY KEY,  -- UUIDv7: ids are in the order of the changes
    at       timestamptz NOT NULL DEFAULT now(),
    user_id  uuid,  -- no foreign key: the entry stays when the user is deleted
    "user"   text,
    token_id uuid,
    action   text NOT NULL,
    target   text NOT NULL,
    details  json NOT NULL DEFAULT '{}',
    address  text
);

-- Deployments and their versions

-- Snapshots of projects' files, addressed by the digest of their files. A source is complete when its row exists: its chunks are written
-- before. Two servers may write zips with different bytes for one digest, so the chunks belong to a content, not to the digest.
CREATE TABLE sources (
    digest  text PRIMARY KEY,
    content uuid NOT NULL UNIQUE,  -- UUIDv7: chunks without a source are as old as their content
    size    bigint NOT NULL,
    files   integer NOT NULL,
    used_at timestamptz NOT NULL DEFAULT now()  -- when it was last added or looked for: a build of it may be about to start
);

CREATE TABLE source_chunks (
    content  uuid NOT NULL,
    position integer NOT NULL,
    sha256   bytea NOT NULL,
    bytes    bytea NOT NULL,
    PRIMARY KEY (content, position)
);

ALTER TABLE source_chunks ALTER COLUMN bytes SET STORAGE EXTERNAL;  -- the chunks are of a compressed archive

CREATE TABLE deployments (
    id                   uuid PRIMARY KEY,
    slug                 text NOT NULL UNIQUE,
    profile              text NOT NULL DEFAULT 'documented' CHECK (profile IN ('documented', 'live')),
    current_version      uuid,
    settings             json NOT NULL DEFAULT '{}',  -- the deployment's own values, which replace those of the project
    deployed             boolean NOT NULL DEFAULT false,  -- false: served from its folder by `windlass dev`
    weight               real NOT NULL DEFAULT 1 CHECK (weight > 0),  -- its share of the slots, relative to other deployments
    concurrency          integer CHECK (concurrency >= 1),  -- NULL: limited only by the slots
    concurrency_strategy text NOT NULL DEFAULT 'enqueue' CHECK (concurrency_strategy IN ('enqueue', 'reject', 'cancel_running')),
    max_waiting          integer CHECK (max_waiting >= 1),  -- NULL: the server's default
    created_at           timestamptz NOT NULL DEFAULT now(),
    paused_at            timestamptz,
    removed_at           timestamptz
);

CREATE TABLE versions (
    id            uuid PRIMARY KEY,
    deployment_id uuid NOT NULL REFERENCES deployments,
    number        integer NOT NULL,
    digest        text NOT NULL,
    source        json NOT NULL,
    manifest      json NOT NULL,
    snapshot      text REFERENCES sources,  -- NULL: served from its folder by `windlass dev`
    changes       json,  -- against the version that was current before
    created_at    timestamptz NOT NULL DEFAULT now(),
    UNIQUE (deployment_id, number)
);

ALTER TABLE deployments ADD FOREIGN KEY (current_version) REFERENCES versions;

CREATE INDEX versions_of_snapshot ON versions (snapshot) WHERE snapshot IS NOT NULL;

-- The versions that were the current one, in the order of time. A rollback removes the last row.
CREATE TABLE current_versions (
    deployment_id uuid NOT NULL REFERENCES deployments,
    position      integer NOT NULL,
    version_id    uuid NOT NULL REFERENCES versions,
    at            timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (deployment_id, position)
);

-- The queue of builds is shared between the people who start them: a build with a smaller turn is done first.
CREATE TABLE builds (
    id            uuid PRIMARY KEY,  -- UUIDv7: ids are in the order of creation
    deployment_id uuid NOT NULL REFERENCES deployments,
    origin        json NOT NULL,  -- the type (folder, zip or git) and the place that the files came from
    snapshot      text REFERENCES sources ON DELETE SET NULL,  -- NULL: not fetched from git yet, or removed after the build
    state         text NOT NULL DEFAULT 'queued' CHECK (state IN ('queued', 'building', 'ready', 'failed', 'superseded')),
    turn          integer NOT NULL DEFAULT 0,
    error         text,
    hint          text,
    changes       json,
    version_id    uuid REFERENCES versions,
    attempt       integer NOT NULL DEFAULT 0,  -- the fencing number: a build is begun again when its worker was lost
    host          text,
    created_by    uuid REFERENCES users ON DELETE SET NULL,
    created_at    timestamptz NOT NULL DEFAULT now(),
    started_at    timestamptz,
    finished_at   timestamptz
);

CREATE INDEX builds_of_deployment ON builds (deployment_id, id DESC);
CREATE INDEX builds_of_snapshot ON builds (snapshot) WHERE snapshot IS NOT NULL;
CREATE INDEX builds_that_are_open ON builds (created_by, turn) WHERE state IN ('queued', 'building');
CREATE INDEX builds_that_were_begun ON builds (turn) WHERE state <> 'queued';

CREATE TABLE build_log (
    build_id uuid NOT NULL,
    seq      integer NOT NULL,
    at       timestamptz NOT NULL DEFAULT now(),
    level    text NOT NULL DEFAULT 'info' CHECK (level IN ('info', 'warning', 'error')),
    message  text NOT NULL,
    PRIMARY KEY (build_id, seq)
);

-- Tokens, variables and secrets

-- A personal token is valid for the control API, and for all crews, with the rights of its user's role.
CREATE TABLE tokens (
    id            uuid PRIMARY KEY,
    kind          text NOT NULL CHECK (kind IN ('organization', 'user', 'personal')),
    deployment_id uuid REFERENCES deployments,  -- NULL: all deployments
    user_id       uuid REFERENCES users,
    name          text,
    digest        bytea NOT NULL UNIQUE,
    last_four     text NOT NULL,
    profile       text CHECK (profile IN ('documented', 'live')),  -- NULL: the deployment's
    scopes        text[] CHECK (scopes <@ ARRAY['read', 'run', 'admin'] AND cardinality(scopes) > 0),  -- NULL: every scope of its kind
    shown_copy    text,  -- the encrypted token; set only for the two tokens that a crew's page shows again
    created_at    timestamptz NOT NULL DEFAULT now(),
    expires_at    timestamptz,
    revoked_at    timestamptz,
    last_used_at  timestamptz,
    CHECK ((kind = 'organization') = (user_id IS NULL)),
    CHECK (kind = 'organization' OR NOT coalesce('admin' = ANY (scopes), false)),
    CHECK (kind <> 'personal' OR deployment_id IS NULL)
);

CREATE UNIQUE INDEX tokens_shown ON tokens (deployment_id, kind) WHERE shown_copy IS NOT NULL AND revoked_at IS NULL;

-- The token that the commands on the server's machine use.
CREATE UNIQUE INDEX tokens_of_the_command_line ON tokens (user_id) WHERE kind = 'personal' AND shown_copy IS NOT NULL AND revoked_at IS NULL;

-- What the server knows of secret managers. No value of a secret is here, except the encrypted ones of variables that are read at deploy.
CREATE TABLE credentials (
    id            uuid PRIMARY KEY,
    name          text NOT NULL UNIQUE,
    provider      text NOT NULL,  -- aws, google, azure or vault
    method        text NOT NULL,  -- such as workload_identity: how the server proves to the provider who it is
    configuration text NOT NULL,  -- encrypted JSON
    is_default    boolean NOT NULL DEFAULT false,  -- of its provider
    created_at    timestamptz NOT NULL DEFAULT now(),
    created_by    uuid REFERENCES users ON DELETE SET NULL,
    updated_at    timestamptz NOT NULL DEFAULT now(),
    updated_by    uuid REFERENCES users ON DELETE SET NULL
);

CREATE UNIQUE INDEX default_credentials ON credentials (provider) WHERE is_default;

-- The source of a variable's value: the value itself (`provider`, `credential_id` and `secret_name` are NULL), the default credential of a
-- provider, or a credential. A variable whose credential is static has the value that its deployment's latest version was built with, NULL
-- before that.
CREATE TABLE variables (
    deployment_id uuid NOT NULL REFERENCES deployments,
    name          text NOT NULL,
    value         text,  -- encrypted
    secret        boolean NOT NULL,
    provider      text,
    credential_id uuid REFERENCES credentials,
    secret_name   text,  -- name, or name#json_key
    read_at       timestamptz,  -- when the value was last read from the secret manager, by a build
    updated_at    timestamptz NOT NULL DEFAULT now(),
    updated_by    uuid REFERENCES users ON DELETE SET NULL,
    PRIMARY KEY (deployment_id, name),
    CHECK (num_nonnulls(provider, credential_id) <= 1),
    CHECK ((num_nonnulls(provider, credential_id) = 1) = (secret_name IS NOT NULL)),
    CHECK (secret_name IS NOT NULL OR value IS NOT NULL),
    CHECK (secret_name IS NULL OR secret)
);

CREATE INDEX variables_of_credential ON variables (credential_id) WHERE credential_id IS NOT NULL;

-- The keys with which the server signs the tokens that identify it to cloud providers, unless OIDC_PRIVATE_KEY has them.
CREATE TABLE signing_keys (
    id         text PRIMARY KEY,  -- the `kid`: the thumbprint of the public key (RFC 7638)
    key        text NOT NULL,  -- encrypted PEM
    created_at timestamptz NOT NULL DEFAULT now(),
    signs_from timestamptz NOT NULL  -- published from the start, so that verifiers know it by then
);

-- Kickoffs. The tables from here on have no foreign keys to deployments: these would lock the deployment's row at every kickoff.

-- The index that claims read contains only kickoffs that are `ready`. A kickoff that is PENDING and not ready waits for `run_at`, which is
-- set to NULL when its time is reached, or for another kickoff with the same concurrency key.
CREATE TABLE kickoffs (
    id                uuid PRIMARY KEY,  -- UUIDv7: ids are in the order of acceptance
    deployment_id     uuid NOT NULL,
    version_id        uuid NOT NULL,
    user_id           uuid,  -- the user whose token started the kickoff
    started_by        text,  -- who started and who stopped it, in words that stay when the user or the token is removed
    stopped_by        text,
    inputs            json NOT NULL,
    meta              json,
    unacted           json,  -- members of the request that this release stores but does not use
    limits            json,

    state             text NOT NULL DEFAULT 'PENDING',
    reason            text,
    error             text,
    warnings          json NOT NULL DEFAULT '[]',
    output            json,
    structured        json,
    token_usage       json,
    model_calls       integer NOT NULL DEFAULT 0,  -- calls that were started, by all attempts
    file_count        integer NOT NULL DEFAULT 0,  -- the status of a kickoff without files reads no other table

    priority          smallint NOT NULL DEFAULT 0,
    run_at            timestamptz,
    due_at            timestamptz,  -- the `run_at` of a kickoff that waited for a time, when that time was reached
    ready             boolean NOT NULL DEFAULT true,
    concurrency_key   text,
    stop_requested_at timestamptz,

    attempt           integer NOT NULL DEFAULT 0,  -- the fencing number: each write of a run names it
    worker_id         uuid,
    lease_until       timestamptz,
    process_started   boolean NOT NULL DEFAULT false,  -- of the attempt that runs
    waiting_for       text,  -- reported by its worker: 'zygote'
    unstarted         integer NOT NULL DEFAULT 0,  -- the number of attempts in a row that ended before their process had started
    losses            integer NOT NULL DEFAULT 0,
    isolated          boolean NOT NULL DEFAULT false,  -- a process was lost: the zygote of its next process serves no other kickoff
    retries           integer NOT NULL DEFAULT 0,  -- failed attempts after which the kickoff ran again
    why               text,  -- why its last run ended without ending the kickoff

    created_at        timestamptz NOT NULL DEFAULT now(),
    started_at        timestamptz,
    finished_at       timestamptz,
    CHECK (run_at IS NULL OR NOT ready)
);

CREATE INDEX kickoffs_of_deployment ON kickoffs (deployment_id, id DESC);
CREATE INDEX kickoffs_ready ON kickoffs (deployment_id, priority DESC, id) WHERE state = 'PENDING' AND ready;
CREATE INDEX kickoffs_not_ready ON kickoffs (deployment_id, run_at) WHERE state = 'PENDING' AND NOT ready;
CREATE INDEX kickoffs_leased ON kickoffs (lease_until) WHERE state = 'STARTED';
CREATE INDEX kickoffs_waiting_for_human ON kickoffs (deployment_id) WHERE state = 'PENDING_HUMAN_INPUT';

-- The kickoffs of one user in a crew's queue. Kickoffs of organization tokens have no entry.
CREATE INDEX kickoffs_of_user_waiting ON kickoffs (deployment_id, user_id) WHERE state = 'PENDING' AND user_id IS NOT NULL;

-- Three indexes of the kickoffs with a concurrency key: all open ones; those that hold the key; those that wait for it, in their order.
CREATE INDEX kickoffs_keyed ON kickoffs (deployment_id, concurrency_key)
 WHERE concurrency_key IS NOT NULL AND state IN ('PENDING', 'STARTED', 'PENDING_HUMAN_INPUT');
CREATE INDEX kickoffs_key_held ON kickoffs (deployment_id, concurrency_key, priority DESC, id)
 WHERE concurrency_key IS NOT NULL AND (state = 'STARTED' OR state = 'PENDING_HUMAN_INPUT' OR (state = 'PENDING' AND ready));
CREATE INDEX kickoffs_key_waiting ON kickoffs (deployment_id, concurrency_key, priority DESC, id)
 WHERE concurrency_key IS NOT NULL AND state = 'PENDING' AND NOT ready AND run_at IS NULL;

-- Retention searches ended kickoffs by the time of their end. The index costs one entry per kickoff, written at its end.
CREATE INDEX kickoffs_finished ON kickoffs (deployment_id, finished_at) WHERE finished_at IS NOT NULL;

-- The newest failure of each deployment. Only failed kickoffs have an entry.
CREATE INDEX kickoffs_failed ON kickoffs (deployment_id, finished_at) WHERE state IN ('FAILED', 'TIMED_OUT');

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

CREATE INDEX attempts_first_started ON attempts (started_at) WHERE attempt = 1;

CREATE TABLE task_records (
    kickoff_id     uuid NOT NULL,
    position       integer NOT NULL,
    task_id        text NOT NULL,
    key            text NOT NULL,
    name           text,
    agent          text,
    state          text NOT NULL,
    registered     boolean NOT NULL DEFAULT true,
    attempt        integer,  -- the attempt that runs or ran the task; NULL: none yet
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

-- The kickoffs whose events a server streams to clients. Only their writes notify: a notification for each write of every run would
-- serialize the commits. The rows may be lost in a crash, as servers write theirs again every few seconds.
CREATE UNLOGGED TABLE streamed (
    kickoff_id uuid PRIMARY KEY,
    until      timestamptz NOT NULL
);

-- A finished step of a run. Later attempts do not run it again.
CREATE TABLE journal (
    kickoff_id       uuid NOT NULL,
    number           integer NOT NULL,
    attempt          integer NOT NULL,
    key              text NOT NULL,
    position         integer,  -- the position of its task record
    output_elsewhere boolean NOT NULL DEFAULT false,  -- the output is stored only in the task record
    record           text NOT NULL,  -- encrypted
    written_at       timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (kickoff_id, number)
);

-- Files that runs wrote into their working folders. `content` identifies the parts of a file in file_chunks. A changed file gets a new
-- content, so that a reader of the old one sees no mixture.
CREATE TABLE files (
    kickoff_id uuid NOT NULL,
    path       text COLLATE "C" NOT NULL,
    size       bigint NOT NULL,
    sha256     bytea NOT NULL,
    media_type text NOT NULL,
    content    uuid NOT NULL,
    stored_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (kickoff_id, path)
);

CREATE TABLE file_chunks (
    kickoff_id uuid NOT NULL,
    content    uuid NOT NULL,
    position   integer NOT NULL,
    bytes      bytea NOT NULL,
    PRIMARY KEY (kickoff_id, content, position)
);

ALTER TABLE file_chunks ALTER COLUMN bytes SET STORAGE EXTERNAL;  -- out of row, without an attempt to compress

-- The progress of retention: the events (or the journals) of the deployment's kickoffs that ended until `finished_at` are removed.
CREATE TABLE retention_progress (
    deployment_id uuid NOT NULL,
    what          text NOT NULL,
    finished_at   timestamptz NOT NULL,
    PRIMARY KEY (deployment_id, what)
);

-- Workers and the server

CREATE TABLE workers (
    id            uuid PRIMARY KEY,
    host          text NOT NULL,
    pid           integer NOT NULL,
    version       text NOT NULL,
    slots         integer NOT NULL,
    deployments   text[],  -- the slugs whose kickoffs it claims, NULL for all
    running       integer NOT NULL DEFAULT 0,
    zygotes       integer NOT NULL DEFAULT 0,
    zygote_memory bigint NOT NULL DEFAULT 0,  -- bytes
    started_at    timestamptz NOT NULL DEFAULT now(),
    seen_at       timestamptz NOT NULL DEFAULT now(),
    alive_until   timestamptz NOT NULL  -- promised by the worker: without a further report until then it is dead
);

-- The names of procrastinate's migration files that are applied (store/side_job_tables.py).
CREATE TABLE side_job_migrations (
    name       text PRIMARY KEY,
    applied_at timestamptz NOT NULL DEFAULT now()
);

-- GET /ready writes a row here, to find out whether the database accepts writes (functions/write_checks.sql). A row fills most of a page.
CREATE TABLE write_checks (filler text NOT NULL);
ALTER TABLE write_checks ALTER COLUMN filler SET STORAGE PLAIN;

-- The statistics of the last 24 hours. A side job counts the kickoffs since `counted_until` once a minute (store/statistics.py), so that no
-- move of a kickoff changes a row that others change too. Times are those of PostgreSQL's clock, hours and minutes those of UTC.
CREATE TABLE statistics_progress (
    counted_until timestamptz NOT NULL
);

INSERT INTO statistics_progress (counted_until) VALUES (now());

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
