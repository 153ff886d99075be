-- Which blobs the points of a workspace line need. A point that is deleted names
-- nothing any more, though its event stays.
CREATE TABLE names (
    session bigint NOT NULL,
    point   text   NOT NULL,
    digest  text   NOT NULL,
    PRIMARY KEY (session, point, digest)
);

CREATE INDEX names_by_digest ON names (digest);
