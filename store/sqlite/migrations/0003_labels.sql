-- When a session was put away (NULL: it was not), and what it has done and cost.
ALTER TABLE sessions ADD COLUMN archived INTEGER;
ALTER TABLE sessions ADD COLUMN metrics TEXT NOT NULL DEFAULT '{}'; -- JSON

-- What people put on a session and look for it by. It is large and seldom
-- changes, so it is kept apart from the row that every append rewrites. A
-- session without a row here has none.
CREATE TABLE labels (
    session  INTEGER PRIMARY KEY,
    tags     TEXT NOT NULL, -- JSON
    metadata TEXT NOT NULL, -- JSON
    search   TEXT NOT NULL
) STRICT;

-- Which blobs the log names.
CREATE INDEX events_by_blob ON events (blob) WHERE blob <> '';

-- The keys of sessions that are gone while rows of theirs are still being
-- removed. Until then no session gets the key.
CREATE TABLE removed (
    session INTEGER PRIMARY KEY
) STRICT;
