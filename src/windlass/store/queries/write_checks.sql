-- name: is_read_only
SELECT current_setting('transaction_read_only') = 'on' AS is_read_only, to_regproc('check_writes') IS NOT NULL AS is_migrated

-- name: check
SELECT check_writes()
