-- The `place` in `staged` is the position of an output, or the negated number of a journal entry, which is never 0. That of a draft is the
-- number of its question plus %(drafts)s, which is above all positions.

-- name: stage
CREATE TEMPORARY TABLE staged (place integer NOT NULL, value text NOT NULL) ON COMMIT DROP

-- name: copy_staged
COPY staged (place, value) FROM STDIN (FORMAT binary)

-- name: move_outputs
UPDATE task_records SET output = staged.value::json
  FROM staged
 WHERE task_records.kickoff_id = %(kickoff)s AND task_records.position = staged.place

-- name: move_entries
UPDATE journal SET record = staged.value
  FROM staged
 WHERE journal.kickoff_id = %(kickoff)s AND journal.number = -staged.place

-- name: move_drafts
UPDATE questions SET draft = staged.value::json
  FROM staged
 WHERE questions.kickoff_id = %(kickoff)s AND questions.number = staged.place - %(drafts)s

-- name: move_result
-- Place 0 is the output, place 1 the structured output.
UPDATE kickoffs
   SET output = coalesce((SELECT value::json FROM staged WHERE place = 0), output),
       structured = coalesce((SELECT value::json FROM staged WHERE place = 1), structured)
 WHERE id = %(kickoff)s
