-- Questions that kickoffs ask people.

-- Look-ups by the kickoff write `coalesce(answered_at, closed_at) IS NULL`, which no partial index has as its condition. With outdated statistics
-- the planner would else read all questions of the deployment that wait.

-- A kickoff whose process waits alive for an answer keeps its lease, and shows the same state as one without a process.
CREATE OR REPLACE FUNCTION shown_state(kickoff kickoffs) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN kickoff.state = 'STARTED' AND kickoff.waiting_for = 'human' THEN 'PENDING_HUMAN_INPUT' ELSE kickoff.state END;
$$;

-- The time in which no process of the kickoff existed because it waited for a person, until now or until its end.
CREATE OR REPLACE FUNCTION paused_time(kickoff kickoffs) RETURNS interval LANGUAGE sql STABLE AS $$
    SELECT kickoff.paused_for + coalesce(coalesce(kickoff.finished_at, now()) - kickoff.paused_at, interval '0');
$$;

-- No question of a kickoff that has ended can be answered.
CREATE OR REPLACE FUNCTION close_questions(of_kickoff uuid) RETURNS void LANGUAGE sql AS $$
    UPDATE questions SET closed_at = now() WHERE kickoff_id = of_kickoff AND coalesce(answered_at, closed_at) IS NULL;
$$;

-- The question with which a run pauses may be one of an interrupted attempt that a person has answered meanwhile.
CREATE OR REPLACE FUNCTION resume_answered(of_kickoff uuid) RETURNS void LANGUAGE sql AS $$
    UPDATE kickoffs
       SET state = 'PENDING'
     WHERE id = of_kickoff AND state = 'PENDING_HUMAN_INPUT'
       AND NOT EXISTS (SELECT FROM questions WHERE kickoff_id = of_kickoff AND coalesce(answered_at, closed_at) IS NULL);
$$;

-- The member `response_schema` of a question: a JSON Schema of the words of the answer.
CREATE OR REPLACE FUNCTION response_schema(choices json) RETURNS json LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN json_array_length(choices) = 0 THEN json_build_object('type', 'string')
                ELSE json_build_object('type', 'string', 'enum', choices) END;
$$;

-- The member `human_input` of a status as JSON text: the first question that waits. NULL: none does.
CREATE OR REPLACE FUNCTION human_input(of_kickoff uuid) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT row_to_json(asked)::text
      FROM (SELECT questions.id AS task_id, coalesce(task_records.name, task_records.task_id, method) AS task, method, question, draft,
                   response_schema(choices) AS response_schema,
                   to_char(asked_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') AS asked_at,
                   to_char(expires_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') AS expires_at
              FROM questions
              LEFT JOIN task_records USING (kickoff_id, position)
             WHERE kickoff_id = of_kickoff AND coalesce(answered_at, closed_at) IS NULL
             ORDER BY number
             LIMIT 1) AS asked;
$$;
