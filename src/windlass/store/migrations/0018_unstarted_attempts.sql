-- Whether the process of the attempt that runs has started, and how many attempts in a row ended before theirs had. Runs of now count as started.
ALTER TABLE kickoffs
    ADD process_started boolean NOT NULL DEFAULT false,
    ADD unstarted       integer NOT NULL DEFAULT 0;

UPDATE kickoffs SET process_started = true WHERE state = 'STARTED';
