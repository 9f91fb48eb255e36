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

-- The source of a variable's value: the value itself (all three are NULL), the default credential of a provider, or a credential.
-- A variable whose credential is static has the value that its deployment's latest version was built with, NULL before that.
ALTER TABLE variables
    ALTER value DROP NOT NULL,
    ADD provider      text,
    ADD credential_id uuid REFERENCES credentials,
    ADD secret_name   text,  -- name, or name#json_key
    ADD read_at       timestamptz,  -- when the value was last read from the secret manager, by a build
    ADD CHECK (num_nonnulls(provider, credential_id) <= 1),
    ADD CHECK ((num_nonnulls(provider, credential_id) = 1) = (secret_name IS NOT NULL)),
    ADD CHECK (secret_name IS NOT NULL OR value IS NOT NULL),
    ADD CHECK (secret_name IS NULL OR secret);

CREATE INDEX variables_of_credential ON variables (credential_id) WHERE credential_id IS NOT NULL;

-- The keys with which the server signs the tokens that identify it to cloud providers, unless OIDC_PRIVATE_KEY has them.
CREATE TABLE signing_keys (
    id         text PRIMARY KEY,  -- the `kid`: the thumbprint of the public key (RFC 7638)
    key        text NOT NULL,  -- encrypted PEM
    created_at timestamptz NOT NULL DEFAULT now(),
    signs_from timestamptz NOT NULL  -- published from the start, so that verifiers know it by then
);

-- Cloud providers know the organization of this server by this id.
INSERT INTO settings (name, value) VALUES ('organization_id', gen_random_uuid()::text);
