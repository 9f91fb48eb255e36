-- The kickoffs of one user in a crew's queue. Kickoffs of organization tokens have no entry.
CREATE INDEX kickoffs_of_user_waiting ON kickoffs (deployment_id, user_id) WHERE state = 'PENDING' AND user_id IS NOT NULL;

CREATE INDEX kickoffs_waiting_for_human ON kickoffs (deployment_id) WHERE state = 'PENDING_HUMAN_INPUT';
