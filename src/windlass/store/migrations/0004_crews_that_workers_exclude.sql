-- The slugs of the deployments whose kickoffs a worker does not run (`windlass worker --exclude`).
ALTER TABLE workers ADD COLUMN excluded text[] NOT NULL DEFAULT '{}';
