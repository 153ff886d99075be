package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/store"
)

// errNoAnswer ends what the database does not answer.
var errNoAnswer = errors.New("the database does not answer")

// commitAlone runs a job in a transaction of its own.
func (w *writer) commitAlone(ctx context.Context, j *job) error {
	tx, err := w.conn.Begin(ctx)
	if err != nil {
		return err
	}
	if err := j.alone(ctx, tx); err != nil {
		if rollback := tx.Rollback(ctx); rollback != nil {
			w.disconnect()
		}
		if store.Refused(err) {
			j.Refuse(err)
			return nil
		}
		return err
	}
	return commitError(tx.Commit(ctx))
}

// commitError says what a failed commit means: if it was not the database itself that
// refused it, it may have happened.
func commitError(err error) error {
	if err == nil || code(err) != "" && !connectionEnded(err) || errors.Is(err, pgx.ErrTxCommitRollback) {
		return err
	}
	return fmt.Errorf("commit: %w: %w", dormouse.ErrUnknownOutcome, err)
}

// commitGroup takes two round trips. The first passes the fences, and if the
// connection breaks there nothing has happened. The second carries the rows of the
// jobs that passed and the commit itself.
func (w *writer) commitGroup(ctx context.Context, jobs []*job) error {
	crash.At(crash.StoreFencing)
	p := w.conn.PgConn().StartPipeline(ctx)
	err := w.fence(p, jobs)
	if err == nil {
		for _, j := range jobs {
			if j.key != 0 && j.queues {
				crash.At(crash.PromptWriting)
			}
		}
		crash.At(crash.StoreFlushing)
		err = w.store(p, jobs)
	}
	closed := p.Close()
	if err == nil {
		// Whatever happened to the connection, the commit was answered.
		crash.At(crash.StoreFlushed)
		return nil
	}
	if closed != nil {
		w.disconnect()
	} else if w.conn.PgConn().TxStatus() != 'I' {
		if _, rollback := w.conn.Exec(ctx, "ROLLBACK"); rollback != nil {
			w.disconnect()
		}
	}
	return err
}

// fence gives a key to each job that may go in.
func (w *writer) fence(p *pgconn.Pipeline, jobs []*job) error {
	byID := make(map[string]*job, len(jobs))
	w.layout.reset()
	for _, j := range jobs {
		j.key = 0
		byID[string(j.batch.Session)] = j
		w.layout.fence(j)
	}
	p.SendQueryPrepared(begin, nil, nil, nil)
	sent := 1
	for _, t := range w.layout.fences {
		if t.send(p) {
			sent++
		}
	}
	if err := p.Sync(); err != nil {
		return err
	}
	_, err := readResults(p, sent, func(v [][]byte) error {
		j := byID[string(v[0])]
		if j == nil {
			return fmt.Errorf("a fence was passed by %q, who is not there", v[0])
		}
		j.key = decodeInteger(v[1])
		return nil
	})
	return err
}

// store writes the rows of jobs that passed the fence, commits, and says why the
// others were refused.
func (w *writer) store(p *pgconn.Pipeline, jobs []*job) error {
	for _, j := range jobs {
		if j.key == 0 {
			w.layout.readFence(j)
		} else {
			w.layout.addRows(j, w.cache[j.batch.Session])
		}
	}
	sent := 0
	for _, t := range w.layout.stored {
		if t.send(p) {
			sent++
		}
	}
	p.SendQueryPrepared(commit, nil, nil, nil)
	fences := make(map[string]fence)
	err := p.Sync()
	done := 0
	if err == nil {
		done, err = readResults(p, sent+1, func(v [][]byte) error {
			fences[string(v[0])] = fence{epoch: unsigned(decodeInteger(v[1])), last: unsigned(decodeInteger(v[2]))}
			return nil
		})
	}
	switch {
	case done > sent: // the commit was answered
	case err == nil:
		return errors.New("the commit was not answered")
	case code(err) != "" && (done < sent || !connectionEnded(err)):
		return err // the database got no further than a statement before, or refused the commit
	default:
		return fmt.Errorf("commit: %w: %w", dormouse.ErrUnknownOutcome, err)
	}
	for _, j := range jobs {
		if j.key == 0 {
			j.Refuse(j.refusal(fences))
		}
	}
	return nil
}

// fence is where a session stood when a batch was refused.
type fence struct{ epoch, last uint64 }

// refusal says why a batch could not go in.
func (j *job) refusal(fences map[string]fence) error {
	at, found := fences[string(j.batch.Session)]
	switch {
	case j.creates && j.batch.Under != nil && !epochMatches(fences[string(j.batch.Under.Session)].epoch, j.batch.Under.Epoch):
		return fmt.Errorf("under %s: %w", j.batch.Under.Session, store.ErrStaleSender)
	case j.creates:
		return dormouse.ErrConflict
	case !found:
		return dormouse.ErrNotFound
	case !epochMatches(at.epoch, j.batch.Epoch):
		return dormouse.ErrLeaseLost
	}
	return dormouse.ErrConflict
}

// epochMatches reports whether a writer under the epoch said may write. A session that
// was never claimed cannot be written.
func epochMatches(at, said store.Epoch) bool { return at == said && said != 0 }

// readResults reads the answers to n statements and says how many came. The rows of
// all of them are given to read.
func readResults(p *pgconn.Pipeline, n int, read func(values [][]byte) error) (int, error) {
	for i := range n {
		result, err := p.GetResults()
		if err != nil {
			return i, err
		}
		rows, ok := result.(*pgconn.ResultReader)
		if !ok {
			return i, fmt.Errorf("a statement was answered with %T", result)
		}
		for err == nil && rows.NextRow() {
			err = read(rows.Values())
		}
		if _, closed := rows.Close(); err == nil {
			err = closed
		}
		if err != nil {
			return i, err
		}
	}
	result, err := p.GetResults()
	if _, ok := result.(*pgconn.PipelineSync); err == nil && !ok {
		err = fmt.Errorf("a sync was answered with %T", result)
	}
	return n, err
}

// prepare readies the statements of a writer in one round trip.
func prepare(ctx context.Context, c *pgx.Conn) error {
	p := c.PgConn().StartPipeline(ctx)
	for name, text := range texts {
		p.SendPrepare(name, text, nil)
	}
	err := p.Sync()
	for range texts {
		if err == nil {
			_, err = p.GetResults()
		}
	}
	if closed := p.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return fmt.Errorf("prepare: %w", err)
	}
	return nil
}
