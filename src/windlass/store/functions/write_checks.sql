-- See docs/decisions/store.md#ready-commits-a-row-to-a-new-file

-- Writes a row into a page that the disk does not have yet. So a full disk shows, also while other tables have free pages. TRUNCATE makes a
-- new, empty file. It is left out while pg_dump or another check uses the table: the row then needs one page more, because pages of the
-- table have no room for two. This is one statement, so that a client which stops in between holds no lock.
CREATE OR REPLACE FUNCTION check_writes() RETURNS void LANGUAGE plpgsql
SET lock_timeout = '1s'
AS $$
BEGIN
    BEGIN
        LOCK TABLE write_checks IN ACCESS EXCLUSIVE MODE NOWAIT;
        TRUNCATE write_checks;
    EXCEPTION WHEN lock_not_available THEN
        NULL;
    END;
    INSERT INTO write_checks (filler) VALUES (repeat('x', 7000));
END
$$;
