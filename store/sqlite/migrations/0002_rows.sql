-- What the log says, laid out for asking. All of it can be rebuilt.
CREATE TABLE prompts (
    session INTEGER NOT NULL,
    id      TEXT    NOT NULL,
    thread  TEXT    NOT NULL,
    status  TEXT    NOT NULL,
    body    TEXT    NOT NULL,
    turn    TEXT    NOT NULL,
    seq     INTEGER NOT NULL CHECK (seq > 0),
    queued  INTEGER NOT NULL,
    UNIQUE (session, id)
) STRICT;

-- The number n orders ops by when they were first recorded. Another index would
-- make every op touch another page, and pages are what a commit costs.
CREATE TABLE ops (
    n        INTEGER PRIMARY KEY,
    session  INTEGER NOT NULL,
    id       TEXT    NOT NULL,
    op       TEXT    NOT NULL, -- JSON
    status   TEXT    NOT NULL,
    outcome  TEXT    NOT NULL,
    started  INTEGER NOT NULL,
    finished INTEGER,
    UNIQUE (session, id)
) STRICT;


CREATE TABLE deadlines (
    session INTEGER NOT NULL,
    id      TEXT    NOT NULL,
    kind    TEXT    NOT NULL,
    at      INTEGER,
    PRIMARY KEY (session, id)
) STRICT, WITHOUT ROWID;

-- Pieces of model calls that are still running.
CREATE TABLE chunks (
    session INTEGER NOT NULL,
    op      TEXT    NOT NULL,
    n       INTEGER NOT NULL CHECK (n >= 0),
    text    TEXT    NOT NULL,
    PRIMARY KEY (session, op, n)
) STRICT, WITHOUT ROWID;

-- The cached fold of each log.
CREATE TABLE states (
    session INTEGER PRIMARY KEY,
    seq     INTEGER NOT NULL,
    version INTEGER NOT NULL,
    data    BLOB
) STRICT;

-- One row that is written to learn whether writing works.
CREATE TABLE checks (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    n    INTEGER NOT NULL
) STRICT;

INSERT INTO checks (only, n) VALUES (1, 0);
