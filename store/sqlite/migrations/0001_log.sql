-- One row per session: who may write it, how far its log goes, and what lists
-- show of it. The integer key stands for the id wherever rows are many.
-- Times are microseconds since 1970, UTC.
CREATE TABLE sessions (
    key      INTEGER PRIMARY KEY,
    id       TEXT    NOT NULL UNIQUE,
    epoch    INTEGER NOT NULL CHECK (epoch >= 0),
    last_seq INTEGER NOT NULL CHECK (last_seq > 0),
    tenant   TEXT    NOT NULL,
    owner    TEXT    NOT NULL,
    parent   TEXT    NOT NULL,
    title    TEXT    NOT NULL,
    phase    TEXT    NOT NULL,
    status   TEXT    NOT NULL,
    created  INTEGER NOT NULL,
    updated  INTEGER NOT NULL,
    due      INTEGER          -- NULL: never
) STRICT;

CREATE INDEX sessions_by_age ON sessions (created, id);
CREATE INDEX sessions_by_tenant ON sessions (tenant, created, id);
CREATE INDEX sessions_by_owner ON sessions (tenant, owner, created, id);
CREATE INDEX sessions_by_phase ON sessions (tenant, phase, created, id);
CREATE INDEX sessions_by_parent ON sessions (tenant, parent, created, id) WHERE parent <> '';
CREATE INDEX sessions_due ON sessions (due) WHERE due IS NOT NULL;

-- The log. Rows are only ever added.
CREATE TABLE events (
    session INTEGER NOT NULL,
    seq     INTEGER NOT NULL CHECK (seq > 0),
    id      TEXT    NOT NULL,
    type    TEXT    NOT NULL,
    thread  TEXT    NOT NULL,
    actor   TEXT    NOT NULL,
    time    INTEGER NOT NULL,
    payload TEXT,
    blob    TEXT    NOT NULL,
    UNIQUE (session, seq)
) STRICT;
