-- Which blobs the points of a workspace line need. A point that is deleted names
-- nothing any more, though its event stays.
CREATE TABLE points (
    session bigint NOT NULL,
    id      text   NOT NULL,
    digests json   NOT NULL,
    PRIMARY KEY (session, id)
);

-- All that the points of a session name, and how many of them do. One names
-- mostly what the one before names, so rows for each point would be many times
-- as many, and each in a page of its own of the index.
CREATE TABLE names (
    session bigint NOT NULL,
    digest  text   NOT NULL,
    n       bigint NOT NULL,
    PRIMARY KEY (session, digest)
) WITH (fillfactor = 60);

CREATE INDEX names_by_digest ON names (digest);
