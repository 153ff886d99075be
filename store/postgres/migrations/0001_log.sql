-- One row per session: who may write it, how far its log goes, and what lists
-- show of it. The integer key stands for the id wherever rows are many. Ids are
-- compared by their bytes, as everywhere else.
CREATE TABLE sessions (
    key      bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id       text        COLLATE "C" NOT NULL UNIQUE,
    epoch    bigint      NOT NULL CHECK (epoch >= 0),
    last_seq bigint      NOT NULL CHECK (last_seq > 0),
    server   bigint,                 -- the incarnation that owns it; NULL: none
    taken    timestamptz,            -- when it was taken, until it is claimed
    tenant   text        NOT NULL,
    owner    text        NOT NULL,
    parent   text        NOT NULL,
    title    text        NOT NULL,
    phase    text        NOT NULL,
    status   text        NOT NULL,
    created  timestamptz NOT NULL,
    updated  timestamptz NOT NULL,
    archived timestamptz,            -- NULL: it was not put away
    due      timestamptz,            -- NULL: never
    metrics  json        NOT NULL
) WITH (fillfactor = 60); -- every append rewrites a row, in the same page if there is room

CREATE INDEX sessions_by_age ON sessions (created, id);
CREATE INDEX sessions_by_tenant ON sessions (tenant, created, id);
CREATE INDEX sessions_by_owner ON sessions (tenant, owner, created, id);
CREATE INDEX sessions_by_phase ON sessions (tenant, phase, created, id);
CREATE INDEX sessions_by_parent ON sessions (tenant, parent, created, id) WHERE parent <> '';
CREATE INDEX sessions_due ON sessions (due, key) WHERE due IS NOT NULL;

-- The log. Rows are only ever added. The bytes of a payload are kept as they
-- are: text could not hold all of them.
CREATE TABLE events (
    session bigint      NOT NULL,
    seq     bigint      NOT NULL CHECK (seq > 0),
    id      text        NOT NULL,
    type    text        NOT NULL,
    thread  text        NOT NULL,
    actor   text        NOT NULL,
    time    timestamptz NOT NULL,
    payload bytea,
    blob    text        NOT NULL,
    PRIMARY KEY (session, seq)
);

-- Which blobs the log names.
CREATE INDEX events_by_blob ON events (blob) WHERE blob <> '';
