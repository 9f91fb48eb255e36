-- The kickoffs whose events a server streams to clients. Only their writes notify: a notification for each write of every run would
-- serialize the commits. The rows may be lost in a crash, as servers write theirs again every few seconds.
CREATE UNLOGGED TABLE streamed (
    kickoff_id uuid PRIMARY KEY,
    until      timestamptz NOT NULL
);
