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

-- argon2id, with its parameters. NULL: the user signs in by a link or by OpenID Connect.
ALTER TABLE users ADD password_hash text;
