package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
)

// layout is a group of jobs on the way to the database, by table.
type layout struct {
	births, fences, holds, looks *table

	events, labels, bare, prompts, ops, closed, chunks, unnamed, pointless, points, names, counted, given, states *table

	stored []*table // those of the second round trip, in the order they are sent
}

func newLayout() *layout {
	l := &layout{
		births: newTable(birthSessions, "siitsssstsssttsisiis"),
		fences: newTable(fenceSessions, "siitsssstsssttsisii"),
		holds:  newTable(holdSessions, "sii"),
		looks:  newTable(lookFences, "s"),

		events:    newTable(addEvents, "iisssstbsi"),
		labels:    newTable(putLabels, "isss"),
		bare:      newTable(dropLabels, "i"),
		prompts:   newTable(putPrompts, "isssssit"),
		ops:       newTable(putOps, "isssstt"),
		closed:    newTable(dropChunks, "is"),
		chunks:    newTable(putChunks, "isis"),
		unnamed:   newTable(countNames, "is"),
		pointless: newTable(dropPoints, "is"),
		points:    newTable(putPoints, "iss"),
		names:     newTable(addNames, "is"),
		counted:   newTable(dropNames, "i"),
		given:     newTable(addClientIDs, "isi"),
		states:    newTable(putStates, "iiib"),
	}
	// Chunks of an op that is closed go before late ones are refused, and what a
	// point named before what it names.
	l.stored = []*table{
		l.events, l.labels, l.bare, l.prompts, l.ops, l.closed, l.chunks,
		l.unnamed, l.pointless, l.points, l.names, l.counted, l.given, l.states,
	}
	return l
}

func (l *layout) clear() {
	for _, t := range append([]*table{l.births, l.fences, l.holds, l.looks}, l.stored...) {
		t.clear()
	}
}

// fence lays out what a job has to pass.
func (l *layout) fence(j *job) {
	b := j.batch
	switch {
	case j.birth:
		l.index(l.births, j)
		if b.Under == nil {
			l.births.null().null()
		} else {
			l.births.number(b.Under.Epoch).text(string(b.Under.Session))
		}
	case b.Epoch == 0: // refused, even if the session has it, too
	case b.Rows == nil:
		l.holds.text(string(b.Session)).number(b.Epoch).number(b.After)
	default:
		l.index(l.fences, j)
		l.fences.number(b.After)
	}
}

func (l *layout) index(t *table, j *job) {
	i := j.batch.Rows.Session
	t.text(string(i.Session)).number(j.batch.Epoch).number(i.Seq).time(i.Updated).text(j.spelled.metrics)
	t.text(i.Title).text(string(i.Phase)).text(string(i.Status)).time(i.Due)
	t.text(i.Tenant).text(string(i.Owner)).text(string(i.Parent)).time(i.Created).time(i.Archived)
	t.text(i.AgentID).integer(int64(i.AgentVersion)).text(i.EnvironmentID).integer(int64(i.Needs))
}

// look asks why a job was refused.
func (l *layout) look(j *job) {
	l.looks.text(string(j.batch.Session))
	if j.batch.Under != nil {
		l.looks.text(string(j.batch.Under.Session))
	}
}

// rows lays out all of a job but its index row.
func (l *layout) rows(j *job, k known) {
	b := j.batch
	for _, e := range b.Events {
		l.events.integer(j.key).number(e.Seq).text(string(e.ID)).text(string(e.Type)).text(string(e.Thread)).
			text(string(e.Actor)).time(e.Time).bytes(e.Payload).text(string(e.Blob)).integer(store.Sum(b.Session, e))
	}
	if b.Rows != nil {
		l.derived(j, k)
	}
	for _, c := range j.spelled.chunks {
		l.chunks.integer(j.key).text(string(c.Op)).integer(int64(c.N)).text(c.Text)
	}
	if b.State != nil {
		l.states.integer(j.key).number(b.State.Seq).integer(int64(b.State.Version)).bytes(b.State.Data)
	}
}

// derived lays out the rows of a job's tables, less what is there already.
func (l *layout) derived(j *job, k known) {
	if j.birth {
		k = known{labels: unlabelled.mark}
	} else if k.epoch != j.batch.Epoch {
		k = known{}
	}
	switch {
	case k.labels == j.spelled.labels.mark:
	case j.spelled.labels == unlabelled:
		l.bare.integer(j.key)
	default:
		l.labels.integer(j.key).text(j.spelled.labels.tags).text(j.spelled.labels.metadata).text(j.spelled.labels.search)
	}
	for _, p := range j.spelled.prompts {
		l.prompts.integer(j.key).text(string(p.ID)).text(string(p.Thread)).text(string(p.Status)).text(string(p.Body)).
			text(string(p.Turn)).number(p.Seq).time(p.Queued)
	}
	for i, o := range j.spelled.ops {
		l.ops.integer(j.key).text(string(o.ID)).text(j.spelled.texts[i]).text(string(o.Status)).text(o.Outcome).
			time(o.Started).time(o.Finished)
		if o.Status != dormouse.OpOpen {
			l.closed.integer(j.key).text(string(o.ID))
		}
	}
	if len(j.spelled.points) > 0 {
		l.counted.integer(j.key)
	}
	for _, p := range j.spelled.points {
		l.unnamed.integer(j.key).text(string(p.Snapshot))
		if len(p.Digests) == 0 {
			l.pointless.integer(j.key).text(string(p.Snapshot))
			continue
		}
		l.points.integer(j.key).text(string(p.Snapshot)).text(p.text)
		for _, d := range p.Digests {
			l.names.integer(j.key).text(string(d))
		}
	}
	for _, id := range j.batch.Rows.ClientIDs {
		l.given.integer(j.key).text(id.ID).number(id.Seq)
	}
}

// send writes what is laid out, within the transaction there is.
func (l *layout) send(ctx context.Context, c *pgx.Conn) error {
	p := c.PgConn().StartPipeline(ctx)
	sent := 0
	for _, t := range append([]*table{l.fences}, l.stored...) {
		if t.send(p) {
			sent++
		}
	}
	err := p.Sync()
	if err == nil {
		_, err = answers(p, sent, func([][]byte) error { return nil })
	}
	if closed := p.Close(); err == nil {
		err = closed
	}
	return err
}
