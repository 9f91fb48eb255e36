-- name: rows
SELECT questions.id, questions.kickoff_id, questions.deployment_id, slug, number, coalesce(task_records.name, task_records.task_id, method) AS task, method,
       question, choices, waits, asked_at, expires_at, on_timeout, closed_at, answered_at, answered_by, approved, feedback, kickoffs.state,
       kickoffs.user_id AS kickoff_user, users.name AS "user", coalesce(deployments.settings -> 'approvers', '[]') AS approvers
  FROM ({chosen}) AS questions
  JOIN kickoffs ON kickoffs.id = questions.kickoff_id
  JOIN deployments ON deployments.id = questions.deployment_id
  LEFT JOIN task_records ON task_records.kickoff_id = questions.kickoff_id AND task_records.position = questions.position
  LEFT JOIN users ON users.id = kickoffs.user_id
 WHERE removed_at IS NULL
 ORDER BY questions.id

-- name: by_id
SELECT * FROM questions WHERE id = %(id)s

-- name: of_task
-- The question with this id or of this task or method: that which waits, else the newest one.
SELECT *
  FROM questions AS asked
 WHERE kickoff_id = %(kickoff)s
   AND (id::text = lower(%(task)s::text) OR method = %(task)s::text
        OR EXISTS (SELECT
                     FROM task_records
                    WHERE task_records.kickoff_id = asked.kickoff_id AND task_records.position = asked.position
                      AND %(task)s::text IN (task_id, name, key)))
 ORDER BY answered_at IS NULL AND closed_at IS NULL DESC, number DESC
 LIMIT 1

-- name: of_kickoff
SELECT * FROM questions WHERE kickoff_id = %(kickoff)s ORDER BY number DESC LIMIT %(limit)s

-- name: open
-- The questions that wait, the oldest first, after the id %(after)s.
SELECT *
  FROM questions AS asked
 WHERE answered_at IS NULL AND closed_at IS NULL AND id > %(after)s::uuid
   AND (%(deployment)s::uuid IS NULL OR deployment_id = %(deployment)s::uuid)
   AND (%(owner)s::uuid IS NULL OR (SELECT user_id FROM kickoffs WHERE kickoffs.id = asked.kickoff_id) = %(owner)s::uuid)
   AND (%(sees)s::uuid IS NULL
        OR deployment_id IN (SELECT deployments.id FROM deployments WHERE is_visible(deployments, %(sees)s::uuid)))
 ORDER BY id
 LIMIT %(limit)s

-- name: expired
-- `again`: the time limit rejected the result of a task, and now that of its repetition, or it has answered the last %(in_a_row)s questions of
-- the kickoff. Without an end here, a task or a flow that loops would be repeated for ever.
SELECT id, kickoff_id, number, on_timeout, waits, extract(epoch FROM expires_at - asked_at)::float8 AS seconds,
       on_timeout = %(reject)s AND method IS NULL AND coalesce((
           SELECT before.answered_by = %(by)s AND NOT before.approved AND before.question = expired.question
             FROM questions AS before
            WHERE before.kickoff_id = expired.kickoff_id AND before.number < expired.number
            ORDER BY before.number DESC
            LIMIT 1), false)
       OR (SELECT count(*) FILTER (WHERE answered_by = %(by)s)
             FROM (SELECT answered_by
                     FROM questions AS before
                    WHERE before.kickoff_id = expired.kickoff_id AND before.number < expired.number
                    ORDER BY before.number DESC
                    LIMIT %(in_a_row)s) AS latest) = %(in_a_row)s AS again
  FROM questions AS expired
 WHERE answered_at IS NULL AND closed_at IS NULL AND expires_at <= now()
 ORDER BY expires_at
 LIMIT %(limit)s

-- name: has_task
SELECT EXISTS (SELECT FROM task_records WHERE kickoff_id = %(kickoff)s AND %(task)s::text IN (task_id, name, key)) AS found

-- name: draft
-- A text of PostgreSQL can't have NUL, which the JSON can have as an escape.
SELECT left(whole.text, %(most)s) AS text, length(whole.text) AS length
  FROM (SELECT replace(draft::text, '\u0000', '\ufffd')::json #>> '{}' AS text FROM questions WHERE id = %(id)s OFFSET 0) AS whole

-- name: count_open
SELECT count(*) AS count
  FROM (SELECT
          FROM questions
         WHERE answered_at IS NULL AND closed_at IS NULL
           AND (%(sees)s::uuid IS NULL
                OR deployment_id IN (SELECT deployments.id FROM deployments WHERE is_visible(deployments, %(sees)s::uuid)))
         LIMIT %(most)s) AS open

-- name: answer
-- All statements lock the row of the kickoff before its questions. Of two answers, the second one finds an answered question. A kickoff without a
-- process can run again, and goes to the queue. The worker of a process that waits alive is notified.
WITH kickoff AS MATERIALIZED (
    SELECT id, state
      FROM kickoffs
     WHERE id = (SELECT kickoff_id FROM questions WHERE id = %(id)s) AND state IN ('PENDING', 'STARTED', 'PENDING_HUMAN_INPUT') AND stop_requested_at IS NULL
       FOR NO KEY UPDATE
), answered AS (
    UPDATE questions
       SET answered_at = now(), answered_by = %(by)s, approved = %(approved)s, feedback = %(feedback)s, answer_key = %(key)s,
           answer_digest = %(digest)s
      FROM kickoff
     WHERE questions.kickoff_id = kickoff.id AND questions.id = %(id)s AND answered_at IS NULL AND closed_at IS NULL
    RETURNING questions.id, questions.kickoff_id, questions.deployment_id, kickoff.state
), moved AS (
    UPDATE kickoffs
       SET state = CASE kickoffs.state WHEN 'PENDING_HUMAN_INPUT' THEN 'PENDING' ELSE kickoffs.state END,
           waiting_for = CASE WHEN waiting_for = 'human' AND NOT EXISTS (
                                   SELECT
                                     FROM questions
                                    WHERE questions.kickoff_id = kickoffs.id AND questions.id <> %(id)s
                                      AND coalesce(answered_at, closed_at) IS NULL) THEN NULL
                              ELSE waiting_for END
      FROM answered
     WHERE kickoffs.id = answered.kickoff_id
), recorded AS (
    INSERT INTO audit_log (id, user_id, "user", token_id, action, target, details, address)
    SELECT %(entry)s::uuid, %(user_id)s::uuid, %(user)s::text, %(token_id)s::uuid, 'kickoff.answer', answered.kickoff_id::text,
           json_build_object('deployment', slug, 'question', answered.id, 'approved', %(approved)s::bool), %(address)s::text
      FROM answered
      JOIN deployments ON deployments.id = answered.deployment_id
)
SELECT kickoff_id, state, CASE state WHEN 'STARTED' THEN pg_notify('windlass_answers', kickoff_id::text) END FROM answered

-- name: fail_expired
-- Nobody has answered in time. A kickoff without a process ends. The worker of a process that waits alive is notified, and ends the run.
WITH kickoff AS MATERIALIZED (
    SELECT id FROM kickoffs WHERE id = %(kickoff)s AND state IN ('PENDING', 'STARTED', 'PENDING_HUMAN_INPUT') FOR NO KEY UPDATE
), closed AS (
    UPDATE questions
       SET closed_at = now()
      FROM kickoff
     WHERE questions.kickoff_id = kickoff.id AND questions.id = %(id)s AND answered_at IS NULL AND closed_at IS NULL
    RETURNING questions.kickoff_id
), ended AS (
    UPDATE kickoffs
       SET state = 'TIMED_OUT', reason = 'timed_out', error = %(error)s, finished_at = now(), run_at = NULL
      FROM closed
     WHERE kickoffs.id = closed.kickoff_id AND kickoffs.state <> 'STARTED'
    RETURNING kickoffs.id
)
SELECT EXISTS (SELECT FROM ended) AS ended, pg_notify('windlass_answers', kickoff_id::text) FROM closed

-- name: answers
-- The answers to questions of a kickoff. A question without an answer is one whose time is over.
SELECT number, approved, feedback
  FROM questions
 WHERE kickoff_id = %(kickoff)s AND (answered_at IS NOT NULL OR (closed_at IS NOT NULL AND expires_at <= closed_at AND attempt = %(attempt)s))
   AND (%(numbers)s::int[] IS NULL OR number = ANY (%(numbers)s::int[]))
 ORDER BY number

-- name: asked_before
SELECT id, asked_at FROM questions WHERE kickoff_id = %(kickoff)s AND key = %(key)s

-- name: repeated
-- Whether the answer to this question came with this idempotency key, and whether it was the same answer.
SELECT answer_digest = %(digest)s AS same FROM questions WHERE id = %(id)s AND answer_key = %(key)s
