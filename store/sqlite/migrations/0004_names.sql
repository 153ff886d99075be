-- Which blobs the points of a workspace line need. A point that is deleted names
-- nothing any more, though its event stays.
CREATE TABLE names (
    session INTEGER NOT NULL,
    point   TEXT    NOT NULL,
    digest  TEXT    NOT NULL,
    PRIMARY KEY (session, point, digest)
) STRICT, WITHOUT ROWID;

CREATE INDEX names_by_digest ON names (digest);
