-- The queue of builds is shared between the people who start them: a build with a smaller turn is done first.
ALTER TABLE builds ADD turn integer NOT NULL DEFAULT 0;

CREATE INDEX builds_that_are_open ON builds (created_by, turn) WHERE state IN ('queued', 'building');
CREATE INDEX builds_that_were_begun ON builds (turn) WHERE state <> 'queued';
