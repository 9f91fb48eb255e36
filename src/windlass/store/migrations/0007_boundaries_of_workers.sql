-- What separates the runs of a worker: a list of kickoffs.boundary_parts.BoundaryPart. Empty for a worker of a former release.
ALTER TABLE workers ADD COLUMN boundary jsonb NOT NULL DEFAULT '[]';
