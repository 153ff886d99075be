package postgres

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
)

const (
	// most is how many writes share a commit at most.
	most = 256
	// grace is how long a caller who stops waiting is asked to wait for what has
	// begun: its outcome is usually a moment away.
	grace = time.Second
)

// lane is a goroutine with a connection of its own, through which all writes of
// some sessions go. What waits while a commit is on its way shares the next one.
type lane struct {
	dial    func(context.Context) (*pgx.Conn, error)
	changed func(dormouse.SessionID) // told of every session that has grown
	jobs    chan *job
	closing <-chan struct{} // closed: take what waits, then stop
	stopped chan struct{}   // closed: nobody takes anything any more

	// Only run and what it calls use these.
	conn    *pgx.Conn // nil: not connected
	layout  *layout
	waiting []*job // behind another of their session
	known   map[dormouse.SessionID]known
}

// job is one write, part of a transaction it shares with others.
type job struct {
	batch   store.Batch
	spelled spelled
	birth   bool // begins a session
	queues  bool // adds a prompt

	// alone, if not nil, is done instead of writing the batch, in a transaction
	// that nobody shares.
	alone func(context.Context, pgx.Tx) error

	taken atomic.Bool // by the lane or by a caller who stopped waiting
	left  atomic.Bool // nobody waits for it
	key   int64       // of the session, once the fence was passed
	err   error
	done  chan error
}

// errLeft answers a job that was given up and has changed nothing.
var errLeft = errors.New("nobody waits")

func newLane(dial func(context.Context) (*pgx.Conn, error), closing <-chan struct{}, changed func(dormouse.SessionID)) *lane {
	return &lane{
		dial:    dial,
		changed: changed,
		jobs:    make(chan *job, most),
		closing: closing,
		stopped: make(chan struct{}),
		layout:  newLayout(),
		known:   make(map[dormouse.SessionID]known),
	}
}

// write hands a job in and waits for it to be durable or refused. A caller may
// leave at once while nobody has begun.
func (l *lane) write(ctx context.Context, j *job) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	j.done = make(chan error, 1)
	select {
	case <-l.closing:
		return dormouse.ErrClosing
	default:
	}
	select {
	case l.jobs <- j:
	case <-l.closing:
		return dormouse.ErrClosing
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	var left error
	select {
	case err := <-j.done:
		return err
	case <-ctx.Done():
		left = context.Cause(ctx)
	case <-l.stopped:
		left = dormouse.ErrClosing
	}
	if j.taken.CompareAndSwap(false, true) {
		return left
	}
	return j.leave(left)
}

// leave gives up a job that has begun.
func (j *job) leave(why error) error {
	j.left.Store(true)
	bound := time.NewTimer(grace)
	defer bound.Stop()
	select {
	case err := <-j.done:
		if errors.Is(err, errLeft) {
			return why
		}
		return err
	case <-bound.C:
		return fmt.Errorf("%w: %w", dormouse.ErrUnknownOutcome, why)
	}
}

// run writes groups until closing is closed and nothing waits.
func (l *lane) run(ctx context.Context) {
	defer close(l.stopped)
	defer l.hangUp()
	for {
		if len(l.waiting) == 0 {
			select {
			case j := <-l.jobs:
				l.waiting = append(l.waiting, j)
			case <-l.closing:
			}
		}
		jobs := l.gather()
		if len(jobs) > 0 {
			l.flush(ctx, jobs)
			continue
		}
		select {
		case <-l.closing:
			return
		default:
		}
	}
}

// gather takes of what waits the next group. A session is in a group once, so
// that a group has no order inside.
func (l *lane) gather() []*job {
	// Those just answered are about to ask again: let them share this commit.
	runtime.Gosched()
	for more := true; more && len(l.waiting) < 2*most; {
		select {
		case j := <-l.jobs:
			l.waiting = append(l.waiting, j)
		default:
			more = false
		}
	}
	var jobs, behind []*job
	seen := make(map[dormouse.SessionID]bool, len(l.waiting))
	for _, j := range l.waiting {
		full := len(jobs) == most || len(jobs) > 0 && (j.alone != nil || jobs[0].alone != nil)
		if full || seen[j.batch.Session] {
			behind = append(behind, j)
			seen[j.batch.Session] = true
		} else if j.taken.CompareAndSwap(false, true) {
			jobs = append(jobs, j)
			seen[j.batch.Session] = true
		}
	}
	l.waiting = behind
	return jobs
}

// flush commits jobs and answers them. It tries for a while, as long as it is
// certain that nothing changed.
func (l *lane) flush(ctx context.Context, jobs []*job) {
	end := time.Now().Add(patience)
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, 500*time.Millisecond) {
		err := l.commit(ctx, jobs)
		switch {
		case err == nil, errors.Is(err, dormouse.ErrUnknownOutcome):
			l.answer(jobs, err)
			return
		case passing(err) && time.Now().Add(wait).Before(end) && l.pause(wait):
			jobs = stay(jobs)
			if len(jobs) == 0 {
				return
			}
		case !passing(err) && code(err) != "" && len(jobs) > 1:
			l.separate(ctx, jobs, end, err)
			return
		default:
			l.answer(jobs, explain(err))
			return
		}
	}
}

// separate commits each job by itself, because one of them spoiled the group and
// must fail alone.
func (l *lane) separate(ctx context.Context, jobs []*job, end time.Time, err error) {
	for i := range jobs {
		if time.Now().After(end) {
			l.answer(jobs[i:], explain(err))
			return
		}
		l.flush(ctx, jobs[i:i+1])
	}
}

// pause waits, and reports whether to go on.
func (l *lane) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-l.closing:
		return false
	}
}

// stay answers those who left and returns the others.
func stay(jobs []*job) (stayed []*job) {
	for _, j := range jobs {
		if j.left.Load() {
			j.done <- errLeft
			continue
		}
		stayed = append(stayed, j)
	}
	return stayed
}

// answer tells each job how it went; err, if not nil, is what went wrong for all.
func (l *lane) answer(jobs []*job, err error) {
	for _, j := range jobs {
		if err != nil {
			j.err = err
		}
		l.remember(j)
		if j.err == nil && len(j.batch.Events) > 0 {
			l.changed(j.batch.Session)
		}
		j.done <- j.err
	}
}

// connect makes the connection if there is none.
func (l *lane) connect(ctx context.Context) (err error) {
	if l.conn != nil && l.conn.IsClosed() {
		l.hangUp()
	}
	if l.conn == nil {
		l.conn, err = l.dial(ctx)
	}
	return err
}

func (l *lane) hangUp() {
	if l.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), grace) //nolint:forbidigo // a farewell that nobody waits for
	defer cancel()
	_ = l.conn.Close(ctx)
	l.conn = nil
}
