-- Webhooks: requests that the server sends to programs of others.

ALTER TABLE kickoffs DROP COLUMN unacted;

ALTER TABLE deployments ADD COLUMN webhooks json NOT NULL DEFAULT '{}';  -- of all its kickoffs: hook -> endpoint and options
ALTER TABLE deployments ADD COLUMN webhook_secrets text;  -- encrypted JSON: the secrets that sign its webhooks, the newest first

-- An address with its credentials, to which webhooks of a deployment are sent.
CREATE TABLE webhook_endpoints (
    id            uuid PRIMARY KEY,  -- a keyed digest of the deployment, the address and the credentials
    deployment_id uuid NOT NULL,
    host          text NOT NULL,
    address       text NOT NULL,  -- encrypted JSON: the URL and the credentials
    failures      integer NOT NULL DEFAULT 0,  -- in a row
    paused_until  timestamptz,  -- no request before, except by hand
    disabled_at   timestamptz,  -- it has answered 410 Gone
    created_at    timestamptz NOT NULL DEFAULT now()
);

CREATE INDEX webhook_endpoints_of_deployment ON webhook_endpoints (deployment_id);

-- The webhooks of a kickoff at one endpoint. The events of the kickoff are the outbox: those after `planned_seq` have no delivery yet.
CREATE TABLE webhooks (
    kickoff_id  uuid NOT NULL,
    endpoint_id uuid NOT NULL,
    hooks       json NOT NULL,  -- hook -> its options
    types       text[],  -- the types of events that cause a delivery; NULL: every type
    planned_seq bigint NOT NULL DEFAULT 0,
    end_planned boolean NOT NULL DEFAULT false,
    due_at      timestamptz,  -- NULL: nothing to deliver
    PRIMARY KEY (kickoff_id, endpoint_id)
);

CREATE INDEX webhooks_due ON webhooks (endpoint_id, due_at) WHERE due_at IS NOT NULL;

CREATE TABLE deliveries (
    id            uuid PRIMARY KEY,  -- UUIDv7: ids are in the order in which the deliveries are sent
    deployment_id uuid NOT NULL,
    kickoff_id    uuid NOT NULL,
    endpoint_id   uuid NOT NULL,
    hook          text NOT NULL,
    first_seq     bigint,  -- its events; NULL: the end of the kickoff
    last_seq      bigint,
    types         text[],  -- those of its events that are sent; NULL: all
    state         text NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'delivered', 'failed')),
    tries         integer NOT NULL DEFAULT 0,  -- failed attempts at their own times; earlier ones do not count
    next_at       timestamptz,  -- the time of the next attempt that counts
    attempts      json NOT NULL DEFAULT '[]',  -- the newest ones, the newest last
    created_at    timestamptz NOT NULL DEFAULT now(),
    finished_at   timestamptz
);

CREATE INDEX deliveries_of_kickoff ON deliveries (kickoff_id, id);
CREATE INDEX deliveries_of_deployment ON deliveries (deployment_id, id DESC);
CREATE INDEX deliveries_waiting ON deliveries (endpoint_id, kickoff_id, id) WHERE state = 'waiting';
