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

ALTER TABLE deployments
    ADD settings   json NOT NULL DEFAULT '{}',  -- the deployment's own values, which replace those of the project
    ADD deployed   boolean NOT NULL DEFAULT false,  -- false: served from its folder by `windlass dev`
    ADD removed_at timestamptz;

ALTER TABLE versions
    ADD snapshot text REFERENCES sources,  -- NULL: served from its folder by `windlass dev`
    ADD changes  json;  -- against the version that was current before

CREATE INDEX versions_of_snapshot ON versions (snapshot) WHERE snapshot IS NOT NULL;

CREATE TABLE builds (
    id            uuid PRIMARY KEY,  -- UUIDv7: ids are in the order of creation
    deployment_id uuid NOT NULL REFERENCES deployments,
    origin        json NOT NULL,  -- the type (folder, zip or git) and the place that the files came from
    snapshot      text REFERENCES sources ON DELETE SET NULL,  -- NULL: not fetched from git yet, or removed after the build
    state         text NOT NULL DEFAULT 'queued' CHECK (state IN ('queued', 'building', 'ready', 'failed', 'superseded')),
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

CREATE TABLE build_log (
    build_id uuid NOT NULL,
    seq      integer NOT NULL,
    at       timestamptz NOT NULL DEFAULT now(),
    level    text NOT NULL DEFAULT 'info' CHECK (level IN ('info', 'warning', 'error')),
    message  text NOT NULL,
    PRIMARY KEY (build_id, seq)
);

CREATE TABLE variables (
    deployment_id uuid NOT NULL REFERENCES deployments,
    name          text NOT NULL,
    value         text NOT NULL,  -- encrypted
    secret        boolean NOT NULL,
    updated_at    timestamptz NOT NULL DEFAULT now(),
    updated_by    uuid REFERENCES users ON DELETE SET NULL,
    PRIMARY KEY (deployment_id, name)
);

ALTER TABLE users ADD role text CHECK (role IN ('owner', 'developer', 'viewer'));  -- NULL: no access to the control API

-- A personal token is valid for the control API, and for all crews, with the rights of its user's role.
ALTER TABLE tokens
    ADD name text,
    DROP CONSTRAINT tokens_kind_check,
    DROP CONSTRAINT tokens_check,
    ADD CONSTRAINT tokens_kind_check CHECK (kind IN ('organization', 'user', 'personal')),
    ADD CONSTRAINT tokens_check CHECK ((kind = 'organization') = (user_id IS NULL)),
    ADD CHECK (kind <> 'personal' OR deployment_id IS NULL);

-- The token that the commands on the server's machine use.
CREATE UNIQUE INDEX tokens_of_the_command_line ON tokens (user_id) WHERE kind = 'personal' AND shown_copy IS NOT NULL AND revoked_at IS NULL;

ALTER TABLE workers ADD deployments text[];  -- the slugs whose kickoffs it claims, NULL for all

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

-- The versions that were the current one, in the order of time. A rollback removes the last row.
CREATE TABLE current_versions (
    deployment_id uuid NOT NULL REFERENCES deployments,
    position      integer NOT NULL,
    version_id    uuid NOT NULL REFERENCES versions,
    at            timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (deployment_id, position)
);
