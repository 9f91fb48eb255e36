-- NULL: every scope of the token's kind.
ALTER TABLE tokens
    ADD scopes text[] CHECK (scopes <@ ARRAY['read', 'run', 'admin'] AND cardinality(scopes) > 0),
    ADD CHECK (kind = 'organization' OR NOT coalesce('admin' = ANY (scopes), false));

-- No token of a disabled user is accepted.
ALTER TABLE users ADD disabled_at timestamptz;
