-- Which blobs the points of a workspace line need. A point that is deleted names
-- nothing any more, though its event stays.
CREATE TABLE points (
    session INTEGER NOT NULL,
    id      TEXT    NOT NULL,
    digests TEXT    NOT NULL, -- JSON
    UNIQUE (session, id)
) STRICT;

-- All that the points of a session name, and how many of them do. One names
-- mostly what the one before names, so rows for each point would be many times
-- as many, and each in a page of its own of the index.
CREATE TABLE names (
    session INTEGER NOT NULL,
    digest  TEXT    NOT NULL,
    n       INTEGER NOT NULL,
    PRIMARY KEY (session, digest)
) STRICT, WITHOUT ROWID;

CREATE INDEX names_by_digest ON names (digest);
