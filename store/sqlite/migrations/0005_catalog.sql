-- What of the catalog a session was made of; empty if of nothing that is in it.
ALTER TABLE sessions ADD COLUMN agent TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN agent_version INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN environment TEXT NOT NULL DEFAULT '';

CREATE INDEX sessions_by_agent ON sessions (tenant, agent, created, id) WHERE agent <> '';
