package sqlite

// statement names what the writer has prepared.
type statement int

const (
	begin statement = iota
	commit
	rollback
	check

	createSession
	claimSession
	findSession
	lookFence
	touchSession
	moveSession
	rewriteSession

	addEvent
	putPrompt
	putOp
	dropDeadlines
	addDeadline
	putChunk
	dropChunks
	putState

	dropPrompts
	dropOps
	dropState
	dropClosedChunks

	statements
)

const indexColumns = `id, tenant, owner, parent, title, phase, status, created, updated, last_seq, due`

// The fence is the WHERE of the three updates: no row of that epoch and seq, no
// append. They differ in how many indexes they make SQLite rewrite, which it
// does for every column a statement sets, changed or not.
const fence = ` WHERE key = ? AND epoch = ? AND last_seq = ?`

var texts = [statements]string{
	begin:    `BEGIN IMMEDIATE`,
	commit:   `COMMIT`,
	rollback: `ROLLBACK`,
	check:    `UPDATE checks SET n = n + 1 WHERE only = 1`,

	createSession: `INSERT INTO sessions (epoch, ` + indexColumns + `)
		VALUES (0, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING`,
	claimSession:   `UPDATE sessions SET epoch = epoch + 1 WHERE id = ? RETURNING epoch`,
	findSession:    `SELECT key FROM sessions WHERE id = ?`,
	lookFence:      `SELECT epoch, last_seq FROM sessions WHERE key = ?`,
	touchSession:   `UPDATE sessions SET last_seq = ?, updated = ?` + fence,
	moveSession:    `UPDATE sessions SET last_seq = ?, updated = ?, title = ?, phase = ?, status = ?, due = ?` + fence,
	rewriteSession: `UPDATE sessions SET last_seq = ?, updated = ?, title = ?, phase = ?, status = ?, due = ?, tenant = ?, owner = ?, parent = ?, created = ?` + fence,

	addEvent: `INSERT INTO events (session, seq, id, type, thread, actor, time, payload, blob)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`,
	putPrompt: `INSERT INTO prompts (session, id, thread, status, body, turn, seq, queued) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (session, id) DO UPDATE SET
		thread = excluded.thread, status = excluded.status, body = excluded.body,
		turn = excluded.turn, seq = excluded.seq, queued = excluded.queued`,
	putOp: `INSERT INTO ops (session, id, op, status, outcome, started, finished) VALUES (?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (session, id) DO UPDATE SET
		op = excluded.op, status = excluded.status, outcome = excluded.outcome,
		started = excluded.started, finished = excluded.finished`,
	dropDeadlines: `DELETE FROM deadlines WHERE session = ?`,
	addDeadline:   `INSERT INTO deadlines (session, id, kind, at) VALUES (?, ?, ?, ?)`,
	// A late chunk of an op that is not open any more is nobody's.
	putChunk: `INSERT OR REPLACE INTO chunks (session, op, n, text) SELECT ?, ?, ?, ?
		WHERE NOT EXISTS (SELECT 1 FROM ops WHERE session = ? AND id = ? AND status <> 'started')`,
	dropChunks: `DELETE FROM chunks WHERE session = ? AND op = ?`,
	putState: `INSERT INTO states (session, seq, version, data) VALUES (?, ?, ?, ?)
		ON CONFLICT (session) DO UPDATE SET seq = excluded.seq, version = excluded.version, data = excluded.data`,

	dropPrompts: `DELETE FROM prompts WHERE session = ?`,
	dropOps:     `DELETE FROM ops WHERE session = ?`,
	dropState:   `DELETE FROM states WHERE session = ?`,
	dropClosedChunks: `DELETE FROM chunks WHERE session = ?
		AND op NOT IN (SELECT id FROM ops WHERE session = ? AND status = 'started')`,
}
