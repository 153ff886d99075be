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
	lookNeeds
	markSession
	findSession
	lookFence
	lookLast
	touchSession
	moveSession
	rewriteSession
	layOutSession
	putLabels
	dropLabels

	addEvent
	putPrompt
	putOp
	unname
	dropSnapshotBlobs
	putSnapshotBlobs
	addNames
	dropUnnamed
	addClientID
	putChunk
	dropChunks
	putState

	dropPrompts
	dropOps
	dropAllSnapshotBlobs
	dropNames
	dropClientIDs
	dropState
	dropClosedChunks

	addDocument
	lookDocument
	lookName
	keepDocument
	putDocument
	carryDocument
	removeDocument
	removeVersions

	removeSession
	markRemoved
	findRemoved
	sweepEvents
	sweepPrompts
	sweepOps
	sweepSnapshotBlobs
	sweepNames
	sweepClientIDs
	sweepChunks
	dropRemoved

	statements
)

// The columns of an index row, in three groups that change together. SQLite updates an
// index for every column of it that a statement sets, changed or not.
const (
	setTouched   = `last_seq = ?, updated = ?, metrics = ?`
	setMoved     = `title = ?, phase = ?, status = ?, due = ?`
	setRewritten = `tenant = ?, owner = ?, parent = ?, created = ?, archived = ?, agent = ?, agent_version = ?, environment = ?, needs = ?`
)

// The fence is the WHERE of the three updates: no row of that epoch and seq, no
// append.
const fence = ` WHERE key = ? AND epoch = ? AND last_seq = ?`

var texts = [statements]string{
	begin:    `BEGIN IMMEDIATE`,
	commit:   `COMMIT`,
	rollback: `ROLLBACK`,
	check:    `UPDATE checks SET n = n + 1 WHERE only = 1`,

	// A key that is still being removed must not be given again.
	createSession: `INSERT INTO sessions (key, id, epoch, last_seq, updated, metrics, title, phase, status, due,
			tenant, owner, parent, created, archived, agent, agent_version, environment, needs)
		VALUES (1 + max((SELECT coalesce(max(key), 0) FROM sessions), (SELECT coalesce(max(session), 0) FROM removed)),
			?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING`,
	claimSession: `UPDATE sessions SET epoch = max(epoch, ?) + 1 WHERE id = ? AND needs <= ? RETURNING epoch`,
	lookNeeds:    `SELECT needs FROM sessions WHERE id = ?`,
	markSession:  `UPDATE sessions SET damage = ? WHERE key = ?`,
	findSession:  `SELECT key FROM sessions WHERE id = ?`,
	lookFence:    `SELECT epoch, last_seq FROM sessions WHERE key = ?`,
	// If last_seq is corrupt and no number, it proves no loss.
	lookLast: `SELECT coalesce((SELECT max(seq) FROM events WHERE session = key), 0), iif(typeof(last_seq) = 'integer', last_seq, 0)
		FROM sessions WHERE key = ?`,
	touchSession:   `UPDATE sessions SET ` + setTouched + fence,
	moveSession:    `UPDATE sessions SET ` + setTouched + `, ` + setMoved + fence,
	rewriteSession: `UPDATE sessions SET ` + setTouched + `, ` + setMoved + `, ` + setRewritten + fence,
	layOutSession:  `UPDATE sessions SET ` + setTouched + `, ` + setMoved + `, ` + setRewritten + ` WHERE key = ?`,
	putLabels: `INSERT INTO labels (session, tags, metadata, search) VALUES (?, ?, ?, ?)
		ON CONFLICT (session) DO UPDATE SET tags = excluded.tags, metadata = excluded.metadata, search = excluded.search`,
	dropLabels: `DELETE FROM labels WHERE session = ?`,

	addEvent: `INSERT INTO events (session, seq, id, type, thread, actor, time, payload, blob, sum)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
	putPrompt: `INSERT INTO prompts (session, id, thread, status, body, turn, seq, queued) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (session, id) DO UPDATE SET
		thread = excluded.thread, status = excluded.status, body = excluded.body,
		turn = excluded.turn, seq = excluded.seq, queued = excluded.queued`,
	putOp: `INSERT INTO ops (session, id, op, status, outcome, started, finished) VALUES (?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (session, id) DO UPDATE SET
		op = excluded.op, status = excluded.status, outcome = excluded.outcome,
		started = excluded.started, finished = excluded.finished`,
	unname: `UPDATE names SET n = n - 1 WHERE session = ?1
		AND digest IN (SELECT value FROM points, json_each(` + wellFormed("digests") + `) WHERE session = ?1 AND points.id = ?2)`,
	dropSnapshotBlobs: `DELETE FROM points WHERE session = ? AND id = ?`,
	putSnapshotBlobs: `INSERT INTO points (session, id, digests) VALUES (?, ?, ?)
		ON CONFLICT (session, id) DO UPDATE SET digests = excluded.digests`,
	addNames: `INSERT INTO names (session, digest, n) SELECT DISTINCT ?, value, 1 FROM json_each(?) WHERE value <> ''
		ON CONFLICT (session, digest) DO UPDATE SET n = n + 1`,
	dropUnnamed: `DELETE FROM names WHERE session = ? AND n < 1`,
	addClientID: `INSERT INTO client_ids (session, id, seq) VALUES (?, ?, ?)`,
	// A late chunk of an op that is not open any more is left out.
	putChunk: `INSERT OR REPLACE INTO chunks (session, op, n, text) SELECT ?, ?, ?, ?
		WHERE NOT EXISTS (SELECT 1 FROM ops WHERE session = ? AND id = ? AND status <> 'started')`,
	dropChunks: `DELETE FROM chunks WHERE session = ? AND op = ?`,
	putState: `INSERT INTO states (session, seq, version, data) VALUES (?, ?, ?, ?)
		ON CONFLICT (session) DO UPDATE SET seq = excluded.seq, version = excluded.version, data = excluded.data`,

	dropPrompts:          `DELETE FROM prompts WHERE session = ?`,
	dropOps:              `DELETE FROM ops WHERE session = ?`,
	dropAllSnapshotBlobs: `DELETE FROM points WHERE session = ?`,
	dropNames:            `DELETE FROM names WHERE session = ?`,
	dropClientIDs:        `DELETE FROM client_ids WHERE session = ?`,
	dropState:            `DELETE FROM states WHERE session = ?`,
	dropClosedChunks: `DELETE FROM chunks WHERE session = ?
		AND op NOT IN (SELECT id FROM ops WHERE session = ? AND status = 'started')`,

	addDocument: `INSERT INTO documents (` + documentColumns + `)
		VALUES (?, ?, ?, ?, ?, 1, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
	lookDocument: `SELECT revision, version FROM documents WHERE tenant = ? AND kind = ? AND id = ?`,
	lookName:     `SELECT 1 FROM documents WHERE tenant = ? AND kind = ? AND name = ? AND name <> '' AND id <> ?`,
	keepDocument: `INSERT OR REPLACE INTO document_versions (` + documentColumns + `)
		SELECT ` + documentColumns + ` FROM documents WHERE tenant = ? AND kind = ? AND id = ?`,
	putDocument: `UPDATE documents SET name = ?, version = ?, revision = revision + 1, updated = ?, archived = ?, body = ?
		WHERE tenant = ? AND kind = ? AND id = ? AND revision = ?`,
	carryDocument: `INSERT OR REPLACE INTO document_versions (` + documentColumns + `)
		VALUES (?, ?, ?, ?, ?, 0, ?, ?, ?, ?)`,
	removeDocument: `DELETE FROM documents WHERE tenant = ? AND kind = ? AND id = ?`,
	removeVersions: `DELETE FROM document_versions WHERE tenant = ? AND kind = ? AND id = ?`,

	removeSession:      `DELETE FROM sessions WHERE key = ?`,
	markRemoved:        `INSERT INTO removed (session) VALUES (?)`,
	findRemoved:        `SELECT session FROM removed LIMIT 1`,
	sweepEvents:        `DELETE FROM events WHERE rowid IN (SELECT rowid FROM events WHERE session = ? LIMIT ?)`,
	sweepPrompts:       `DELETE FROM prompts WHERE rowid IN (SELECT rowid FROM prompts WHERE session = ? LIMIT ?)`,
	sweepOps:           `DELETE FROM ops WHERE n IN (SELECT n FROM ops WHERE session = ? LIMIT ?)`,
	sweepSnapshotBlobs: `DELETE FROM points WHERE rowid IN (SELECT rowid FROM points WHERE session = ? LIMIT ?)`,
	sweepNames:         `DELETE FROM names WHERE (session, digest) IN (SELECT session, digest FROM names WHERE session = ? LIMIT ?)`,
	sweepClientIDs:     `DELETE FROM client_ids WHERE (session, id) IN (SELECT session, id FROM client_ids WHERE session = ? LIMIT ?)`,
	sweepChunks:        `DELETE FROM chunks WHERE (session, op, n) IN (SELECT session, op, n FROM chunks WHERE session = ? LIMIT ?)`,
	dropRemoved:        `DELETE FROM removed WHERE session = ?`,
}
