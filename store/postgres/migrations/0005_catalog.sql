-- What of the catalog a session was made of; empty if of nothing that is in it.
ALTER TABLE sessions
    ADD COLUMN agent         text   NOT NULL DEFAULT '',
    ADD COLUMN agent_version bigint NOT NULL DEFAULT 0,
    ADD COLUMN environment   text   NOT NULL DEFAULT '';

CREATE INDEX sessions_by_agent ON sessions (tenant, agent, created, id) WHERE agent <> '';
