package postgres

// The statements of a group. Each takes one array per column, so that a group
// of any size is one statement per table.
const (
	begin  = "begin"
	commit = "commit"

	birthSessions = "birth"
	fenceSessions = "fence"
	holdSessions  = "hold"
	lookFences    = "look"

	addEvents    = "events"
	putLabels    = "labels"
	dropLabels   = "drop_labels"
	putPrompts   = "prompts"
	putOps       = "ops"
	dropChunks   = "drop_chunks"
	putChunks    = "chunks"
	countNames   = "count_names"
	dropPoints   = "drop_points"
	putPoints    = "points"
	addNames     = "names"
	dropNames    = "drop_names"
	addClientIDs = "client_ids"
	putStates    = "states"
)

var texts = map[string]string{
	begin:  `BEGIN ISOLATION LEVEL READ COMMITTED`,
	commit: `COMMIT`,

	// The lock on a parent lets it be written but not be claimed, so that its epoch
	// is still the same when the child is committed.
	birthSessions: `WITH parents AS (SELECT id, epoch FROM sessions WHERE id = ANY ($20::text[]) AND epoch > 0 FOR KEY SHARE)
		INSERT INTO sessions (id, epoch, last_seq, updated, metrics, title, phase, status, due, tenant, owner, parent, created, archived,
			agent, agent_version, environment, needs)
		SELECT id, epoch, last_seq, updated, metrics::json, title, phase, status, due, tenant, owner, parent, created, archived,
			agent, agent_version, environment, needs
		FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::timestamptz[], $5::text[], $6::text[], $7::text[], $8::text[],
			$9::timestamptz[], $10::text[], $11::text[], $12::text[], $13::timestamptz[], $14::timestamptz[],
			$15::text[], $16::bigint[], $17::text[], $18::bigint[], $19::bigint[], $20::text[])
		AS b (id, epoch, last_seq, updated, metrics, title, phase, status, due, tenant, owner, parent, created, archived,
			agent, agent_version, environment, needs, under_epoch, under)
		WHERE under IS NULL OR EXISTS (SELECT 1 FROM parents WHERE parents.id = under AND parents.epoch = under_epoch)
		ON CONFLICT (id) DO NOTHING RETURNING id, key`,

	// The fence: no row of that epoch and seq, no append.
	fenceSessions: `UPDATE sessions AS s SET last_seq = b.last_seq, updated = b.updated, metrics = b.metrics::json,
			title = b.title, phase = b.phase, status = b.status, due = b.due,
			tenant = b.tenant, owner = b.owner, parent = b.parent, created = b.created, archived = b.archived,
			agent = b.agent, agent_version = b.agent_version, environment = b.environment, needs = b.needs
		FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::timestamptz[], $5::text[], $6::text[], $7::text[], $8::text[],
			$9::timestamptz[], $10::text[], $11::text[], $12::text[], $13::timestamptz[], $14::timestamptz[],
			$15::text[], $16::bigint[], $17::text[], $18::bigint[], $19::bigint[])
		AS b (id, epoch, last_seq, updated, metrics, title, phase, status, due, tenant, owner, parent, created, archived,
			agent, agent_version, environment, needs, after)
		WHERE s.id = b.id AND s.epoch = b.epoch AND s.last_seq = b.after
		RETURNING s.id, s.key`,

	// The same for a batch that changes no row of its session.
	holdSessions: `SELECT s.id, s.key FROM unnest($1::text[], $2::bigint[], $3::bigint[]) AS b (id, epoch, after)
		JOIN sessions AS s ON s.id = b.id AND s.epoch = b.epoch AND s.last_seq = b.after FOR NO KEY UPDATE OF s`,

	lookFences: `SELECT id, epoch, last_seq FROM sessions WHERE id = ANY ($1::text[])`,

	addEvents: `INSERT INTO events (session, seq, id, type, thread, actor, time, payload, blob, sum)
		SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[], $7::timestamptz[], $8::bytea[], $9::text[], $10::bigint[])`,
	putLabels: `INSERT INTO labels (session, tags, metadata, search)
		SELECT session, tags::jsonb, metadata::jsonb, search
		FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[]) AS b (session, tags, metadata, search)
		ON CONFLICT (session) DO UPDATE SET tags = excluded.tags, metadata = excluded.metadata, search = excluded.search`,
	dropLabels: `DELETE FROM labels WHERE session = ANY ($1::bigint[])`,
	putPrompts: `INSERT INTO prompts (session, id, thread, status, body, turn, seq, queued)
		SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[], $8::timestamptz[])
		ON CONFLICT (session, id) DO UPDATE SET thread = excluded.thread, status = excluded.status, body = excluded.body,
			turn = excluded.turn, seq = excluded.seq, queued = excluded.queued`,
	putOps: `INSERT INTO ops (session, id, op, status, outcome, started, finished)
		SELECT session, id, op::json, status, outcome, started, finished
		FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::timestamptz[], $7::timestamptz[])
		AS b (session, id, op, status, outcome, started, finished)
		ON CONFLICT (session, id) DO UPDATE SET op = excluded.op, status = excluded.status, outcome = excluded.outcome,
			started = excluded.started, finished = excluded.finished`,
	dropChunks: `DELETE FROM chunks AS c USING unnest($1::bigint[], $2::text[]) AS b (session, op)
		WHERE c.session = b.session AND c.op = b.op`,
	// A late chunk of an op that is not open any more is nobody's.
	putChunks: `INSERT INTO chunks (session, op, n, text)
		SELECT session, op, n, text FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::text[]) AS b (session, op, n, text)
		WHERE NOT EXISTS (SELECT 1 FROM ops WHERE ops.session = b.session AND ops.id = b.op AND ops.status <> 'started')
		ON CONFLICT (session, op, n) DO UPDATE SET text = excluded.text`,
	countNames: `WITH gone AS (SELECT session, digest, count(*) AS n
			FROM unnest($1::bigint[], $2::text[]) AS b (session, id) JOIN points USING (session, id), json_array_elements_text(digests) AS digest
			GROUP BY session, digest)
		UPDATE names SET n = names.n - gone.n FROM gone WHERE names.session = gone.session AND names.digest = gone.digest`,
	dropPoints: `DELETE FROM points AS p USING unnest($1::bigint[], $2::text[]) AS b (session, id)
		WHERE p.session = b.session AND p.id = b.id`,
	putPoints: `INSERT INTO points (session, id, digests)
		SELECT session, id, digests::json FROM unnest($1::bigint[], $2::text[], $3::text[]) AS b (session, id, digests)
		ON CONFLICT (session, id) DO UPDATE SET digests = excluded.digests`,
	addNames: `INSERT INTO names (session, digest, n)
		SELECT session, digest, count(*) FROM unnest($1::bigint[], $2::text[]) AS b (session, digest) GROUP BY session, digest
		ON CONFLICT (session, digest) DO UPDATE SET n = names.n + excluded.n`,
	dropNames:    `DELETE FROM names WHERE session = ANY ($1::bigint[]) AND n < 1`,
	addClientIDs: `INSERT INTO client_ids (session, id, seq) SELECT * FROM unnest($1::bigint[], $2::text[], $3::bigint[])`,
	putStates: `INSERT INTO states (session, seq, version, data)
		SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bytea[])
		ON CONFLICT (session) DO UPDATE SET seq = excluded.seq, version = excluded.version, data = excluded.data`,
}
