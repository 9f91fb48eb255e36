-- When the person signed in last. People who are known by now count as signed in now.
ALTER TABLE sign_in_identities ADD signed_in_at timestamptz NOT NULL DEFAULT now();
