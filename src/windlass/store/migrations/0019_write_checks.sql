-- GET /ready writes a row here, to find out whether the database accepts writes (functions/write_checks.sql). A row fills most of a page.
CREATE TABLE write_checks (filler text NOT NULL);
ALTER TABLE write_checks ALTER COLUMN filler SET STORAGE PLAIN;
