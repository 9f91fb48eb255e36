-- From here on, functions and triggers are in functions/*.sql. This removes those that these files do not replace. Claims and changes of
-- kickoffs wait meanwhile, so that none of them uses a view that is being removed.
SELECT pg_advisory_xact_lock(hashtextextended('claim', 0));
LOCK TABLE kickoffs IN ACCESS EXCLUSIVE MODE;
DROP VIEW IF EXISTS claimable, registered_tasks;
DROP FUNCTION IF EXISTS key_is_held(uuid, text);

ALTER TABLE kickoffs RENAME alone TO isolated;  -- a process was lost: the zygote of its next process serves no other kickoff
ALTER TABLE journal RENAME apart TO output_elsewhere;
