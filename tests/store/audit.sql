-- Of one kickoff, the order of `seq` is the order of the changes: each write of a run holds a lock on the kickoff's row.
CREATE TABLE audit (
    seq         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    source      text NOT NULL,
    kickoff_id  uuid NOT NULL,
    attempt     integer,
    before      text,
    after       text,
    position    integer,
    lease_until timestamptz
);
CREATE INDEX audit_of_kickoff ON audit (kickoff_id, seq);

CREATE FUNCTION audit_kickoff() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO audit (source, kickoff_id, attempt, before, after, lease_until)
    VALUES (TG_TABLE_NAME, NEW.id, NEW.attempt, CASE TG_OP WHEN 'UPDATE' THEN OLD.state END, NEW.state, NEW.lease_until);
    RETURN NULL;
END $$;
CREATE TRIGGER audited AFTER INSERT OR UPDATE ON kickoffs FOR EACH ROW EXECUTE FUNCTION audit_kickoff();

CREATE FUNCTION audit_of_attempt() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO audit (source, kickoff_id, attempt) VALUES (TG_TABLE_NAME, NEW.kickoff_id, NEW.attempt);
    RETURN NULL;
END $$;
CREATE TRIGGER audited AFTER INSERT OR UPDATE ON events FOR EACH ROW EXECUTE FUNCTION audit_of_attempt();
CREATE TRIGGER audited AFTER INSERT OR UPDATE ON attempts FOR EACH ROW EXECUTE FUNCTION audit_of_attempt();

CREATE FUNCTION audit_entry() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO audit (source, kickoff_id, attempt, position)
    VALUES (TG_TABLE_NAME, NEW.kickoff_id, NEW.attempt, NEW.position);
    RETURN NULL;
END $$;
CREATE TRIGGER audited AFTER INSERT OR UPDATE ON journal FOR EACH ROW EXECUTE FUNCTION audit_entry();

-- Only what a run tells: at the claim and at the end the records change by themselves.
CREATE FUNCTION audit_task() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO audit (source, kickoff_id, attempt, before, after, position)
    VALUES (TG_TABLE_NAME, NEW.kickoff_id, NEW.attempt, CASE TG_OP WHEN 'UPDATE' THEN OLD.state END, NEW.state, NEW.position);
    RETURN NULL;
END $$;
CREATE TRIGGER audited_insert AFTER INSERT ON task_records
   FOR EACH ROW WHEN (NEW.state IN ('running', 'completed')) EXECUTE FUNCTION audit_task();
CREATE TRIGGER audited_update AFTER UPDATE ON task_records
   FOR EACH ROW WHEN (NEW.state IN ('running', 'completed') AND OLD.state <> NEW.state) EXECUTE FUNCTION audit_task();
