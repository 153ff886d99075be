-- The ids that clients have given in a session, each with the event that had it
-- first. A request that comes again is known by its id for as long as the session
-- is there, and no two of one session can have the same.
CREATE TABLE client_ids (
    session INTEGER NOT NULL,
    id      TEXT    NOT NULL,
    seq     INTEGER NOT NULL CHECK (seq > 0),
    PRIMARY KEY (session, id)
) STRICT, WITHOUT ROWID;

-- What a step found, for whoever runs the server.
CREATE TABLE schema_notes (
    version INTEGER NOT NULL,
    note    TEXT    NOT NULL
) STRICT;

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
    SELECT session, seq, substr(payload, 8, instr(substr(payload, 8, 200), '"') - 1) FROM events
        WHERE type = 'wakeup.scheduled' AND substr(payload, 1, 12) = '{"id":"wake_'
    UNION ALL
    SELECT session, seq, substr(payload, 13, instr(substr(payload, 13, 200), '"') - 1) FROM events
        WHERE type = 'request.taken' AND substr(payload, 1, 17) = '{"request":"sevt_'
    UNION ALL
    SELECT session, seq, substr(payload, 22, instr(substr(payload, 22, 200), '"') - 1) FROM events
        WHERE type = 'child.spawned' AND substr(payload, 1, 26) = '{"child":{"session":"sesn_';

INSERT INTO client_ids (session, id, seq) SELECT session, id, min(seq) FROM given_ids GROUP BY session, id;

INSERT INTO schema_notes (version, note)
    SELECT 7, n || ' requests had an id that another of their session had before; the first of each stands'
    FROM (SELECT (SELECT count(*) FROM given_ids) - (SELECT count(*) FROM client_ids) AS n) WHERE n > 0;

DROP VIEW given_ids;

-- Of what was too large for its row, the id stands in what became of it.
INSERT OR IGNORE INTO client_ids (session, id, seq)
    SELECT session, substr(payload, 8, instr(substr(payload, 8, 200), '"') - 1), min(seq) FROM events
        WHERE type IN ('wakeup.fired', 'wakeup.cancelled') AND substr(payload, 1, 12) = '{"id":"wake_' GROUP BY 1, 2;
INSERT OR IGNORE INTO client_ids (session, id, seq)
    SELECT session, substr(payload, 11, instr(substr(payload, 11, 200), '"') - 1), min(seq) FROM events
        WHERE type IN ('child.started', 'child.ended') AND substr(payload, 1, 15) = '{"child":"sesn_' GROUP BY 1, 2;
