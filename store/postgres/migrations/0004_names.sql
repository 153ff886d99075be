-- Which blobs the points of a workspace line need. A point that is deleted names
-- nothing any more, though its event stays.
CREATE TABLE points (
    session bigint NOT NULL,
    id      text   NOT NULL,
    digests json   NOT NULL,
    PRIMARY KEY (session, id)
);

-- All that the points of a session name. One names mostly what the one before
-- names, so that a row for each would be sixty times as many.
CREATE TABLE names (
    session bigint NOT NULL,
    digest  text   NOT NULL,
    PRIMARY KEY (session, digest)
);

CREATE INDEX names_by_digest ON names (digest);
