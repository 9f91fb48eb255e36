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

ALTER TABLE kickoffs ADD file_count integer NOT NULL DEFAULT 0;  -- the status of a kickoff without files reads no other table
