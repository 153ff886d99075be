package postgres

import (
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
)

// The names of the statements that take no rows.
const (
	begin  = "begin"
	commit = "commit"
)

// of is a value that a job writes.
type of[T any] struct {
	job   *job
	value *T
}

// sessionKey is the key of the session whose row it is.
func sessionKey[T any]() column[of[T]] {
	return bigint("session", func(r of[T]) int64 { return r.job.key })
}

// jobKey is the same for a statement of jobs.
func jobKey() column[*job] { return bigint("session", func(j *job) int64 { return j.key }) }

// indexColumns are those of a session's row, and more that its fence needs.
func indexColumns(more ...column[*job]) []column[*job] {
	row := func(j *job) *dormouse.SessionRow { return &j.batch.Rows.Session }
	return append([]column[*job]{
		text("id", func(j *job) dormouse.SessionID { return row(j).Session }),
		bigint("epoch", func(j *job) uint64 { return j.batch.Epoch }),
		bigint("last_seq", func(j *job) uint64 { return row(j).Seq }),
		timestamptz("updated", func(j *job) time.Time { return row(j).Updated }),
		text("metrics", func(j *job) string { return j.encoded.metrics }),
		text("title", func(j *job) string { return row(j).Title }),
		text("phase", func(j *job) dormouse.Phase { return row(j).Phase }),
		text("status", func(j *job) dormouse.Status { return row(j).Status }),
		timestamptz("due", func(j *job) time.Time { return row(j).Due }),
		text("tenant", func(j *job) string { return row(j).Tenant }),
		text("owner", func(j *job) dormouse.Actor { return row(j).Owner }),
		text("parent", func(j *job) dormouse.SessionID { return row(j).Parent }),
		timestamptz("created", func(j *job) time.Time { return row(j).Created }),
		timestamptz("archived", func(j *job) time.Time { return row(j).Archived }),
		text("agent", func(j *job) string { return row(j).AgentID }),
		bigint("agent_version", func(j *job) int { return row(j).AgentVersion }),
		text("environment", func(j *job) string { return row(j).EnvironmentID }),
		bigint("needs", func(j *job) int { return row(j).Needs }),
	}, more...)
}

// The statements of the first round trip, which fence.
var (
	// createSessions locks parents: the lock on one lets it be written but not be claimed, so that its epoch
	// is still the same when the child is committed.
	createSessions = define("create_sessions", `WITH parents AS (SELECT id, epoch FROM sessions WHERE id = ANY ({under}) AND epoch > 0 FOR KEY SHARE)
		INSERT INTO sessions (id, epoch, last_seq, updated, metrics, title, phase, status, due, tenant, owner, parent, created, archived,
			agent, agent_version, environment, needs)
		SELECT id, epoch, last_seq, updated, metrics::json, title, phase, status, due, tenant, owner, parent, created, archived,
			agent, agent_version, environment, needs
		FROM {rows}
		WHERE under IS NULL OR EXISTS (SELECT 1 FROM parents WHERE parents.id = under AND parents.epoch = under_epoch)
		ON CONFLICT (id) DO NOTHING RETURNING id, key`,
		indexColumns(
			bigint("under_epoch", func(j *job) uint64 { f, _ := j.under(); return f.Epoch }),
			nullableText("under", func(j *job) (dormouse.SessionID, bool) { f, ok := j.under(); return f.Session, ok }),
		)...)

	// updateSessions is the fence: no row of that epoch and seq, no append.
	updateSessions = define("update_sessions", `UPDATE sessions AS s SET last_seq = b.last_seq, updated = b.updated, metrics = b.metrics::json,
			title = b.title, phase = b.phase, status = b.status, due = b.due,
			tenant = b.tenant, owner = b.owner, parent = b.parent, created = b.created, archived = b.archived,
			agent = b.agent, agent_version = b.agent_version, environment = b.environment, needs = b.needs
		FROM {rows}
		WHERE s.id = b.id AND s.epoch = b.epoch AND s.last_seq = b.after
		RETURNING s.id, s.key`,
		indexColumns(bigint("after", func(j *job) uint64 { return j.batch.After }))...)

	// lockSessions is the fence of batches that change no row of their session.
	lockSessions = define("lock_sessions", `SELECT s.id, s.key FROM {rows}
		JOIN sessions AS s ON s.id = b.id AND s.epoch = b.epoch AND s.last_seq = b.after FOR NO KEY UPDATE OF s`,
		text("id", func(j *job) dormouse.SessionID { return j.batch.Session }),
		bigint("epoch", func(j *job) uint64 { return j.batch.Epoch }),
		bigint("after", func(j *job) uint64 { return j.batch.After }),
	)
)

// The statements of the second round trip.
var (
	// readFences says why jobs were refused.
	readFences = define("read_fences", `SELECT id, epoch, last_seq FROM sessions WHERE id = ANY ({id})`,
		text("id", func(id dormouse.SessionID) dormouse.SessionID { return id }),
	)

	insertEvents = define("insert_events", `INSERT INTO events (session, seq, id, type, thread, actor, time, payload, blob, sum)
		SELECT * FROM {rows}`,
		sessionKey[dormouse.Event](),
		bigint("seq", func(e of[dormouse.Event]) uint64 { return e.value.Seq }),
		text("id", func(e of[dormouse.Event]) dormouse.EventID { return e.value.ID }),
		text("type", func(e of[dormouse.Event]) dormouse.EventType { return e.value.Type }),
		text("thread", func(e of[dormouse.Event]) dormouse.ThreadID { return e.value.Thread }),
		text("actor", func(e of[dormouse.Event]) dormouse.Actor { return e.value.Actor }),
		timestamptz("time", func(e of[dormouse.Event]) time.Time { return e.value.Time }),
		bytea("payload", func(e of[dormouse.Event]) []byte { return e.value.Payload }),
		text("blob", func(e of[dormouse.Event]) dormouse.Digest { return e.value.Blob }),
		bigint("sum", func(e of[dormouse.Event]) int64 { return store.Sum(e.job.batch.Session, *e.value) }),
	)

	upsertLabels = define("upsert_labels", `INSERT INTO labels (session, tags, metadata, search)
		SELECT session, tags::jsonb, metadata::jsonb, search FROM {rows}
		ON CONFLICT (session) DO UPDATE SET tags = excluded.tags, metadata = excluded.metadata, search = excluded.search`,
		jobKey(),
		text("tags", func(j *job) string { return j.encoded.labels.tags }),
		text("metadata", func(j *job) string { return j.encoded.labels.metadata }),
		text("search", func(j *job) string { return j.encoded.labels.search }),
	)
	deleteLabels = define("delete_labels", `DELETE FROM labels WHERE session = ANY ({session})`, jobKey())

	upsertPrompts = define("upsert_prompts", `INSERT INTO prompts (session, id, thread, status, body, turn, seq, queued)
		SELECT * FROM {rows}
		ON CONFLICT (session, id) DO UPDATE SET thread = excluded.thread, status = excluded.status, body = excluded.body,
			turn = excluded.turn, seq = excluded.seq, queued = excluded.queued`,
		sessionKey[dormouse.PromptRecord](),
		text("id", func(p of[dormouse.PromptRecord]) dormouse.EventID { return p.value.ID }),
		text("thread", func(p of[dormouse.PromptRecord]) dormouse.ThreadID { return p.value.Thread }),
		text("status", func(p of[dormouse.PromptRecord]) dormouse.PromptStatus { return p.value.Status }),
		text("body", func(p of[dormouse.PromptRecord]) dormouse.Digest { return p.value.Body }),
		text("turn", func(p of[dormouse.PromptRecord]) dormouse.TurnID { return p.value.Turn }),
		bigint("seq", func(p of[dormouse.PromptRecord]) uint64 { return p.value.Seq }),
		timestamptz("queued", func(p of[dormouse.PromptRecord]) time.Time { return p.value.Queued }),
	)

	upsertOps = define("upsert_ops", `INSERT INTO ops (session, id, op, status, outcome, started, finished)
		SELECT session, id, op::json, status, outcome, started, finished FROM {rows}
		ON CONFLICT (session, id) DO UPDATE SET op = excluded.op, status = excluded.status, outcome = excluded.outcome,
			started = excluded.started, finished = excluded.finished`,
		sessionKey[op](),
		text("id", func(o of[op]) dormouse.OpID { return o.value.ID }),
		text("op", func(o of[op]) string { return o.value.json }),
		text("status", func(o of[op]) dormouse.OpStatus { return o.value.Status }),
		text("outcome", func(o of[op]) string { return o.value.Outcome }),
		timestamptz("started", func(o of[op]) time.Time { return o.value.Started }),
		timestamptz("finished", func(o of[op]) time.Time { return o.value.Finished }),
	)

	deleteChunks = define("delete_chunks", `DELETE FROM chunks AS c USING {rows} WHERE c.session = b.session AND c.op = b.op`,
		sessionKey[op](),
		text("op", func(o of[op]) dormouse.OpID { return o.value.ID }),
	)
	// upsertChunks leaves out late chunks of ops that are not open any more.
	upsertChunks = define("upsert_chunks", `INSERT INTO chunks (session, op, n, text)
		SELECT session, op, n, text FROM {rows}
		WHERE NOT EXISTS (SELECT 1 FROM ops WHERE ops.session = b.session AND ops.id = b.op AND ops.status <> 'started')
		ON CONFLICT (session, op, n) DO UPDATE SET text = excluded.text`,
		sessionKey[store.Chunk](),
		text("op", func(c of[store.Chunk]) dormouse.OpID { return c.value.Op }),
		bigint("n", func(c of[store.Chunk]) int { return c.value.N }),
		text("text", func(c of[store.Chunk]) string { return c.value.Text }),
	)

	// decrementNames counts down the blobs that a snapshot's row names, before the row is
	// deleted.
	decrementNames = define("decrement_names", `WITH gone AS (SELECT session, digest, count(*) AS n
			FROM {rows} JOIN points USING (session, id), json_array_elements_text(digests) AS digest
			GROUP BY session, digest)
		UPDATE names SET n = names.n - gone.n FROM gone WHERE names.session = gone.session AND names.digest = gone.digest`,
		sessionKey[snapshotBlobs](), snapshotColumn())
	deleteSnapshotBlobs = define("delete_points", `DELETE FROM points AS p USING {rows} WHERE p.session = b.session AND p.id = b.id`,
		sessionKey[snapshotBlobs](), snapshotColumn())
	upsertSnapshotBlobs = define("upsert_points", `INSERT INTO points (session, id, digests)
		SELECT session, id, digests::json FROM {rows}
		ON CONFLICT (session, id) DO UPDATE SET digests = excluded.digests`,
		sessionKey[snapshotBlobs](), snapshotColumn(),
		text("digests", func(p of[snapshotBlobs]) string { return p.value.json }),
	)
	incrementNames = define("increment_names", `INSERT INTO names (session, digest, n)
		SELECT session, digest, count(*) FROM {rows} GROUP BY session, digest
		ON CONFLICT (session, digest) DO UPDATE SET n = names.n + excluded.n`,
		sessionKey[dormouse.Digest](),
		text("digest", func(d of[dormouse.Digest]) dormouse.Digest { return *d.value }),
	)
	deleteNames = define("delete_names", `DELETE FROM names WHERE session = ANY ({session}) AND n < 1`, jobKey())

	insertClientIDs = define("insert_client_ids", `INSERT INTO client_ids (session, id, seq) SELECT * FROM {rows}`,
		sessionKey[dormouse.ClientID](),
		text("id", func(c of[dormouse.ClientID]) string { return c.value.ID }),
		bigint("seq", func(c of[dormouse.ClientID]) uint64 { return c.value.Seq }),
	)

	upsertStates = define("upsert_states", `INSERT INTO states (session, seq, version, data)
		SELECT * FROM {rows}
		ON CONFLICT (session) DO UPDATE SET seq = excluded.seq, version = excluded.version, data = excluded.data`,
		jobKey(),
		bigint("seq", func(j *job) uint64 { return j.batch.State.Seq }),
		bigint("version", func(j *job) int { return j.batch.State.Version }),
		bytea("data", func(j *job) []byte { return j.batch.State.Data }),
	)
)

func snapshotColumn() column[of[snapshotBlobs]] {
	return text("id", func(p of[snapshotBlobs]) dormouse.SnapshotID { return p.value.Snapshot })
}
