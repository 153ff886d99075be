-- What the log says, laid out for asking. All of it can be rebuilt.
CREATE TABLE prompts (
    session bigint      NOT NULL,
    id      text        NOT NULL,
    thread  text        NOT NULL,
    status  text        NOT NULL,
    body    text        NOT NULL,
    turn    text        NOT NULL,
    seq     bigint      NOT NULL CHECK (seq > 0),
    queued  timestamptz NOT NULL,
    PRIMARY KEY (session, id)
) WITH (fillfactor = 80);

-- The number n orders ops by when they were first recorded.
CREATE TABLE ops (
    n        bigint      GENERATED ALWAYS AS IDENTITY,
    session  bigint      NOT NULL,
    id       text        NOT NULL,
    op       json        NOT NULL,
    status   text        NOT NULL,
    outcome  text        NOT NULL,
    started  timestamptz NOT NULL,
    finished timestamptz,
    PRIMARY KEY (session, id)
) WITH (fillfactor = 80);

CREATE TABLE deadlines (
    session bigint NOT NULL,
    id      text   NOT NULL,
    kind    text   NOT NULL,
    at      timestamptz,
    PRIMARY KEY (session, id)
);

-- Pieces of model calls that are still running.
CREATE TABLE chunks (
    session bigint  NOT NULL,
    op      text    NOT NULL,
    n       bigint  NOT NULL CHECK (n >= 0),
    text    text    NOT NULL,
    PRIMARY KEY (session, op, n)
);

-- The cached fold of each log.
CREATE TABLE states (
    session bigint  PRIMARY KEY,
    seq     bigint  NOT NULL,
    version bigint  NOT NULL,
    data    bytea
);

-- What people put on a session and look for it by. It is large and seldom
-- changes, so it is kept apart from the row that every append rewrites. A
-- session without a row here has none.
CREATE TABLE labels (
    session  bigint PRIMARY KEY,
    tags     jsonb  NOT NULL,
    metadata jsonb  NOT NULL,
    search   text   NOT NULL
);

-- The keys of sessions that are gone while rows of theirs are still being
-- removed.
CREATE TABLE removed (
    session bigint PRIMARY KEY
);

-- One row that is written to learn whether writing works.
CREATE TABLE checks (
    one integer PRIMARY KEY CHECK (one = 1),
    n   bigint  NOT NULL
) WITH (fillfactor = 10);

INSERT INTO checks (one, n) VALUES (1, 0);
