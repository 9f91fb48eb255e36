-- See docs/decisions/queue.md#one-trigger-makes-the-changes-that-follow-a-move
-- See docs/decisions/queue.md#the-end-of-the-latest-attempt-is-stored

-- What follows a change of a kickoff's state, in the same transaction, whichever statement changed it: its attempt ends, its task records
-- are reopened or closed, the next kickoff with its concurrency key gets the key, its webhooks are woken, and listeners are notified.

CREATE OR REPLACE FUNCTION end_attempt(before kickoffs, after kickoffs) RETURNS void LANGUAGE sql AS $$
    UPDATE attempts
       SET ended_at = now(), why = CASE after.state WHEN 'PENDING' THEN after.why WHEN 'PENDING_HUMAN_INPUT' THEN NULL ELSE after.error END,
           ended_as = CASE WHEN after.state = 'PENDING_HUMAN_INPUT' THEN 'paused'
                           WHEN after.state <> 'PENDING' THEN after.state
                           WHEN after.losses > before.losses OR after.unstarted > before.unstarted THEN 'lost'
                           WHEN after.retries > before.retries THEN 'retried'
                           ELSE 'released' END
     WHERE kickoff_id = before.id AND attempt = before.attempt;
$$;

CREATE OR REPLACE FUNCTION follow_kickoff() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.state = 'STARTED' THEN
        PERFORM end_attempt(OLD, NEW);
    END IF;
    IF NEW.state IN ('SUCCESS', 'FAILED', 'TIMED_OUT', 'CANCELLED') THEN
        -- The claim of a kickoff that was running has recorded the tasks of its version.
        PERFORM close_tasks(NEW.id, CASE OLD.state WHEN 'PENDING' THEN NEW.version_id END);
        PERFORM wake_webhooks(NEW.id, NULL);
        IF NEW.asked THEN
            PERFORM close_questions(NEW.id);
        END IF;
        PERFORM pg_notify('windlass_ended', NEW.id::text);
    ELSE
        IF OLD.state <> 'PENDING' THEN
            PERFORM reopen_tasks(NEW.id, NEW.state = 'PENDING_HUMAN_INPUT');
        END IF;
        IF NEW.state = 'PENDING_HUMAN_INPUT' AND NEW.asked THEN
            PERFORM resume_answered(NEW.id);
        END IF;
        IF NEW.state = 'PENDING' AND NEW.ready THEN
            PERFORM pg_notify('windlass_kickoffs', '');
        END IF;
    END IF;
    IF OLD.concurrency_key IS NOT NULL AND holds_key(OLD) AND NOT holds_key(NEW) THEN
        PERFORM give_turn(OLD.deployment_id, OLD.concurrency_key);
    END IF;
    RETURN NULL;
END
$$;

-- Made once. Another one in its place would lock kickoffs, while a migration has locked deployments: kickoffs that are accepted
-- meanwhile lock them in the other order. A changed trigger needs another name.
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = 'kickoffs'::regclass AND tgname = 'kickoff_moved') THEN
        CREATE TRIGGER kickoff_moved AFTER UPDATE OF state, ready ON kickoffs
           FOR EACH ROW WHEN (NEW.state <> 'STARTED' AND (OLD.state, OLD.ready) IS DISTINCT FROM (NEW.state, NEW.ready))
           EXECUTE FUNCTION follow_kickoff();
    END IF;
END
$$;
