package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
)

// layout is a group of jobs on the way to the database, by statement.
type layout struct {
	createSessions, updateSessions, lockSessions *table[*job]

	readFences          *table[dormouse.SessionID]
	insertEvents        *table[of[dormouse.Event]]
	upsertLabels        *table[*job]
	deleteLabels        *table[*job]
	upsertPrompts       *table[of[dormouse.PromptRecord]]
	upsertOps           *table[of[op]]
	deleteChunks        *table[of[op]]
	upsertChunks        *table[of[store.Chunk]]
	decrementNames      *table[of[snapshotBlobs]]
	deleteSnapshotBlobs *table[of[snapshotBlobs]]
	upsertSnapshotBlobs *table[of[snapshotBlobs]]
	incrementNames      *table[of[dormouse.Digest]]
	deleteNames         *table[*job]
	insertIDs           *table[of[dormouse.ClientID]]
	upsertStates        *table[*job]

	fences []sender // of the first round trip
	stored []sender // of the second, in the order they are sent
}

// sender is a table whatever its rows are.
type sender interface {
	reset()
	send(p *pgconn.Pipeline) bool
	prepared() (name, text string)
}

func newLayout() *layout {
	l := &layout{
		createSessions:      newTable(createSessions),
		updateSessions:      newTable(updateSessions),
		lockSessions:        newTable(lockSessions),
		readFences:          newTable(readFences),
		insertEvents:        newTable(insertEvents),
		upsertLabels:        newTable(upsertLabels),
		deleteLabels:        newTable(deleteLabels),
		upsertPrompts:       newTable(upsertPrompts),
		upsertOps:           newTable(upsertOps),
		deleteChunks:        newTable(deleteChunks),
		upsertChunks:        newTable(upsertChunks),
		decrementNames:      newTable(decrementNames),
		deleteSnapshotBlobs: newTable(deleteSnapshotBlobs),
		upsertSnapshotBlobs: newTable(upsertSnapshotBlobs),
		incrementNames:      newTable(incrementNames),
		deleteNames:         newTable(deleteNames),
		insertIDs:           newTable(insertClientIDs),
		upsertStates:        newTable(upsertStates),
	}
	l.fences = []sender{l.createSessions, l.updateSessions, l.lockSessions}
	// Chunks of a closed op are deleted before late ones are refused, and the old names of
	// a snapshot are removed before the new ones are added.
	l.stored = []sender{
		l.readFences, l.insertEvents, l.upsertLabels, l.deleteLabels, l.upsertPrompts, l.upsertOps, l.deleteChunks, l.upsertChunks,
		l.decrementNames, l.deleteSnapshotBlobs, l.upsertSnapshotBlobs, l.incrementNames, l.deleteNames, l.insertIDs, l.upsertStates,
	}
	return l
}

// texts are the statements that a writer prepares, by name.
var texts = func() map[string]string {
	all := map[string]string{begin: `BEGIN ISOLATION LEVEL READ COMMITTED`, commit: `COMMIT`}
	l := newLayout()
	for _, t := range append(l.fences, l.stored...) {
		name, text := t.prepared()
		all[name] = text
	}
	return all
}()

func (l *layout) reset() {
	for _, t := range l.fences {
		t.reset()
	}
	for _, t := range l.stored {
		t.reset()
	}
}

// fence lays out what a job has to pass.
func (l *layout) fence(j *job) {
	switch {
	case j.creates:
		l.createSessions.add(j)
	case j.batch.Epoch == 0: // refused, even if the session has it, too
	case j.batch.Rows == nil:
		l.lockSessions.add(j)
	default:
		l.updateSessions.add(j)
	}
}

// readFence asks why a job was refused.
func (l *layout) readFence(j *job) {
	l.readFences.add(j.batch.Session)
	if under, ok := j.under(); ok {
		l.readFences.add(under.Session)
	}
}

// addRows lays out all of a job but its session's row.
func (l *layout) addRows(j *job, c cached) {
	addAll(l.insertEvents, j, j.batch.Events)
	if j.batch.Rows != nil {
		l.addDerived(j, c)
	}
	addAll(l.upsertChunks, j, j.encoded.chunks)
	if j.batch.State != nil {
		l.upsertStates.add(j)
	}
}

// addDerived lays out the rows of a job's tables, less what is there already.
func (l *layout) addDerived(j *job, c cached) {
	if j.creates {
		c = cached{labels: noLabels.sum}
	} else if c.epoch != j.batch.Epoch {
		c = cached{}
	}
	switch {
	case c.labels == j.encoded.labels.sum:
	case j.encoded.labels == noLabels:
		l.deleteLabels.add(j)
	default:
		l.upsertLabels.add(j)
	}
	addAll(l.upsertPrompts, j, j.encoded.prompts)
	addAll(l.upsertOps, j, j.encoded.ops)
	for i := range j.encoded.ops {
		if o := &j.encoded.ops[i]; o.Status != dormouse.OpOpen {
			l.deleteChunks.add(of[op]{j, o})
		}
	}
	if len(j.encoded.snapshots) > 0 {
		l.deleteNames.add(j)
	}
	for i := range j.encoded.snapshots {
		p := &j.encoded.snapshots[i]
		l.decrementNames.add(of[snapshotBlobs]{j, p})
		if len(p.Digests) == 0 {
			l.deleteSnapshotBlobs.add(of[snapshotBlobs]{j, p})
			continue
		}
		l.upsertSnapshotBlobs.add(of[snapshotBlobs]{j, p})
		addAll(l.incrementNames, j, p.Digests)
	}
	addAll(l.insertIDs, j, j.batch.Rows.ClientIDs)
}

// addAll adds the values that a job writes to a table.
func addAll[T any](t *table[of[T]], j *job, values []T) {
	for i := range values {
		t.add(of[T]{j, &values[i]})
	}
}

// send writes what is laid out, within the transaction there is.
func (l *layout) send(ctx context.Context, c *pgx.Conn) error {
	p := c.PgConn().StartPipeline(ctx)
	sent := 0
	for _, t := range append([]sender{l.updateSessions}, l.stored...) {
		if t.send(p) {
			sent++
		}
	}
	err := p.Sync()
	if err == nil {
		_, err = readResults(p, sent, func([][]byte) error { return nil })
	}
	if closed := p.Close(); err == nil {
		err = closed
	}
	return err
}
