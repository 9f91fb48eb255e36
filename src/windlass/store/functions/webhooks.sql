-- See docs/decisions/webhooks.md#the-events-are-the-outbox

-- Defers the side job that delivers the webhooks of an endpoint. A job that waits for its time has a lower priority, as procrastinate does
-- the jobs with one lock in the order of priority and number.
CREATE OR REPLACE FUNCTION defer_delivery(endpoint uuid, at timestamptz) RETURNS void LANGUAGE sql AS $$
    INSERT INTO procrastinate_jobs (queue_name, task_name, priority, lock, args, scheduled_at)
    SELECT 'deliver_webhooks', 'deliver_webhooks', CASE WHEN later IS NULL THEN 1 ELSE 0 END, 'webhooks ' || endpoint,
           jsonb_build_object('endpoint', endpoint), later
      FROM (SELECT CASE WHEN at > now() THEN at END AS later) AS time;
$$;

-- Marks the webhooks of the kickoff that have something to deliver: at events of these types, or with NULL at its end. The caller has written
-- that in the same transaction. The rows are locked also if they are marked already, so that a delivery that is about to clear the mark sees
-- what was written. Batches of events wait a second for more.
CREATE OR REPLACE FUNCTION wake_webhooks(kickoff uuid, occurred text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    found record;
    at timestamptz;
BEGIN
    FOR found IN
        SELECT endpoint_id, due_at, hooks
          FROM webhooks
         WHERE kickoff_id = kickoff AND (occurred IS NULL OR types IS NULL OR types && occurred)
         ORDER BY endpoint_id
           FOR NO KEY UPDATE
    LOOP
        IF found.due_at IS NULL THEN
            at := CASE WHEN occurred IS NULL OR found.hooks #>> '{events,realtime}' IS DISTINCT FROM 'false' THEN now()
                       ELSE now() + interval '1 second' END;
            UPDATE webhooks SET due_at = at WHERE kickoff_id = kickoff AND endpoint_id = found.endpoint_id;
            PERFORM defer_delivery(found.endpoint_id, at);
        END IF;
    END LOOP;
END
$$;
