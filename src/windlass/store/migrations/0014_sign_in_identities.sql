-- People who sign in with OpenID Connect: the provider's name for each of them.
CREATE TABLE sign_in_identities (
    issuer     text NOT NULL,
    subject    text NOT NULL,
    user_id    uuid NOT NULL REFERENCES users ON DELETE CASCADE,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (issuer, subject)
);

CREATE INDEX sign_in_identities_of_user ON sign_in_identities (user_id);
