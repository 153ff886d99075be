-- The ids that clients have given in a session, each with the event that had it
-- first. A request that comes again is known by its id for as long as the session
-- is there, and no two of one session can have the same.
CREATE TABLE client_ids (
    session bigint NOT NULL,
    id      text   COLLATE "C" NOT NULL,
    seq     bigint NOT NULL CHECK (seq > 0),
    PRIMARY KEY (session, id)
);

-- What a step found, for whoever runs the server.
CREATE TABLE schema_notes (
    version integer NOT NULL,
    note    text    NOT NULL
);

-- Where the id is in the payload it is read there by its place, so that no payload,
-- whatever its bytes, can stop the step. A branch begins with answers that were given
-- in another session: before the first op.
CREATE VIEW given_ids AS
    SELECT session, seq, id FROM events
        WHERE type IN ('prompt.queued', 'exec.asked', 'question.answered', 'user.tool_confirmation')
    UNION ALL
    SELECT session, seq, id FROM events AS e WHERE type = 'user.custom_tool_result'
        AND EXISTS (SELECT 1 FROM events AS o WHERE o.session = e.session AND o.seq < e.seq AND o.type = 'op.started')
    UNION ALL
    SELECT session, seq, found FROM events, substring(encode(substring(payload FROM 1 FOR 200), 'escape') FROM '^\{"id":"(wake_[0-9A-Za-z_-]+)"') AS found
        WHERE type = 'wakeup.scheduled' AND found IS NOT NULL
    UNION ALL
    SELECT session, seq, found FROM events, substring(encode(substring(payload FROM 1 FOR 200), 'escape') FROM '^\{"request":"(sevt_[0-9A-Za-z_-]+)"') AS found
        WHERE type = 'request.taken' AND found IS NOT NULL
    UNION ALL
    SELECT session, seq, found FROM events, substring(encode(substring(payload FROM 1 FOR 200), 'escape') FROM '^\{"child":\{"session":"(sesn_[0-9A-Za-z_-]+)"') AS found
        WHERE type = 'child.spawned' AND found IS NOT NULL;

INSERT INTO client_ids (session, id, seq) SELECT session, id, min(seq) FROM given_ids GROUP BY session, id;

INSERT INTO schema_notes (version, note)
    SELECT 7, n || ' requests had an id that another of their session had before; the first of each stands'
    FROM (SELECT (SELECT count(*) FROM given_ids) - (SELECT count(*) FROM client_ids) AS n) AS doubles WHERE n > 0;

DROP VIEW given_ids;

-- Of what was too large for its row, the id stands in what became of it.
INSERT INTO client_ids (session, id, seq)
    SELECT session, found, min(seq) FROM events, substring(encode(substring(payload FROM 1 FOR 200), 'escape') FROM '^\{"id":"(wake_[0-9A-Za-z_-]+)"') AS found
        WHERE type IN ('wakeup.fired', 'wakeup.cancelled') AND found IS NOT NULL GROUP BY session, found
    ON CONFLICT DO NOTHING;
INSERT INTO client_ids (session, id, seq)
    SELECT session, found, min(seq) FROM events, substring(encode(substring(payload FROM 1 FOR 200), 'escape') FROM '^\{"child":"(sesn_[0-9A-Za-z_-]+)"') AS found
        WHERE type IN ('child.started', 'child.ended') AND found IS NOT NULL GROUP BY session, found
    ON CONFLICT DO NOTHING;
