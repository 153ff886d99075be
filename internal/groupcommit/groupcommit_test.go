package groupcommit_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dormouse-run/dormouse/internal/groupcommit"
)

var (
	errClosed  = errors.New("closed")
	errUnknown = errors.New("unknown outcome")
	errRefused = errors.New("refused")
	errFailed  = errors.New("failed")
	errBusy    = errors.New("busy")
)

// write is a write named by what happens to it: "refused…", "failing…", "alone…".
type write struct {
	groupcommit.Request
	name string
}

// database notes the groups that were committed. While it is held, a commit waits.
type database struct {
	hold   chan struct{} // closed: go on
	busy   int           // how many commits to fail first with errBusy
	tries  int
	groups []string
}

func (d *database) commit(_ context.Context, group []*write) error {
	<-d.hold
	if d.tries++; d.tries <= d.busy {
		return errBusy
	}
	var names []string
	for _, w := range group {
		switch {
		case strings.HasPrefix(w.name, "failing"):
			return errFailed
		case strings.HasPrefix(w.name, "refused"):
			w.Refuse(errRefused)
		default:
			names = append(names, w.name)
		}
	}
	d.groups = append(d.groups, strings.Join(names, " "))
	return nil
}

func judge(err error) groupcommit.Verdict {
	switch {
	case errors.Is(err, errBusy):
		return groupcommit.Retry
	case errors.Is(err, errFailed):
		return groupcommit.Split
	}
	return groupcommit.Fail
}

// rig is a writer of a database, and its callers.
type rig struct {
	*database
	writer  *groupcommit.Writer[*write]
	closing chan struct{}
	callers sync.WaitGroup
	mu      sync.Mutex
	answers map[string]error // guarded by mu
}

// newRig starts a writer and gives it a first write, whose commit waits until release.
func newRig(t *testing.T, change func(*groupcommit.Options[*write])) *rig {
	t.Helper()
	r := &rig{database: &database{hold: make(chan struct{})}, closing: make(chan struct{}), answers: make(map[string]error)}
	o := groupcommit.Options[*write]{Max: 4, Commit: r.commit, Judge: judge, Closed: errClosed, Unknown: errUnknown}
	change(&o)
	r.writer = groupcommit.New(r.closing, o)
	ctx := context.WithoutCancel(t.Context())
	r.callers.Go(func() { r.writer.Run(ctx) })
	r.write(ctx, "first")
	return r
}

func (r *rig) write(ctx context.Context, names ...string) {
	for _, name := range names {
		r.callers.Go(func() {
			err := r.writer.Write(ctx, &write{name: name})
			r.mu.Lock()
			defer r.mu.Unlock()
			r.answers[name] = err
		})
		synctest.Wait() // in this order
	}
}

// finish lets the database go on, and waits until every caller is answered.
func (r *rig) finish() {
	close(r.hold)
	synctest.Wait()
	close(r.closing)
	r.callers.Wait()
}

func (r *rig) check(t *testing.T, groups []string, answers map[string]error) {
	t.Helper()
	if !slices.Equal(r.groups, groups) {
		t.Errorf("groups = %q, want %q", r.groups, groups)
	}
	for name, err := range r.answers {
		if !errors.Is(err, answers[name]) {
			t.Errorf("%s was answered %v, want %v", name, err, answers[name])
		}
	}
}

func none(*groupcommit.Options[*write]) {}

func TestWhatWaitsIsCommittedTogetherUpToALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, none)
		r.write(t.Context(), "a", "b", "c", "d", "e", "f")
		r.finish()
		r.check(t, []string{"first", "a b c d", "e f"}, nil)
	})
}

func TestARefusedWriteFailsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, none)
		r.write(t.Context(), "a", "refused", "b")
		r.finish()
		r.check(t, []string{"first", "a b"}, map[string]error{"refused": errRefused})
	})
}

func TestAWriteThatFailsTheTransactionFailsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, none)
		r.write(t.Context(), "a", "failing", "refused", "b")
		r.finish()
		r.check(t, []string{"first", "a", "", "b"}, map[string]error{"failing": errFailed, "refused": errRefused})
	})
}

func TestAGroupIsRetriedUntilPatienceEnds(t *testing.T) {
	for busy, want := range map[int]error{3: nil, 1000: errBusy} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, func(o *groupcommit.Options[*write]) { o.Patience = 10 * time.Second })
			r.busy = busy
			began := time.Now()
			close(r.hold)
			r.callers.Go(func() { time.Sleep(20 * time.Second); close(r.closing) })
			r.callers.Wait()
			if err := r.answers["first"]; !errors.Is(err, want) {
				t.Errorf("after %d failures the answer is %v, want %v", busy, err, want)
			}
			if took := time.Since(began); took > 30*time.Second || want != nil && r.tries < 10 {
				t.Errorf("there were %d tries in %v", r.tries, took)
			}
		})
	}
}

func TestNothingIsRetriedWithoutPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, none)
		r.busy = 1
		r.finish()
		r.check(t, nil, map[string]error{"first": errBusy})
	})
}

func TestWritesOfOneKeyKeepTheirOrderAndAreNeverInOneGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(o *groupcommit.Options[*write]) { o.Key = func(w *write) string { return w.name[:1] } })
		r.write(t.Context(), "a1", "a2", "b1", "a3", "c1", "b2")
		r.finish()
		r.check(t, []string{"first", "a1 b1 c1", "a2 b2", "a3"}, nil)
	})
}

func TestAWriteThatIsAloneSharesItsCommitWithNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(o *groupcommit.Options[*write]) {
			o.Key = func(w *write) string { return w.name }
			o.Alone = func(w *write) bool { return strings.HasPrefix(w.name, "alone") }
		})
		r.write(t.Context(), "a", "alone1", "b", "alone2", "c")
		r.finish()
		r.check(t, []string{"first", "a b c", "alone1", "alone2"}, nil)
	})
}

func TestACallerMayLeaveBeforeItsCommitHasBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, none)
		ctx, cancel := context.WithCancel(t.Context())
		r.write(ctx, "a")
		r.write(t.Context(), "b")
		cancel()
		synctest.Wait()
		r.mu.Lock()
		if err, answered := r.answers["a"]; !answered || !errors.Is(err, context.Canceled) {
			t.Errorf("a was answered %v, %v", err, answered)
		}
		r.mu.Unlock()
		r.finish()
		r.check(t, []string{"first", "b"}, map[string]error{"a": context.Canceled})
	})
}

func TestACallerWhoLeavesLaterGetsTheOutcomeOrUnknown(t *testing.T) {
	for grace, want := range map[time.Duration]error{0: nil, time.Second: errUnknown} { //nolint:exhaustive // units are no enumeration
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, func(o *groupcommit.Options[*write]) { o.Grace = grace; o.Max = 1 })
			ctx, cancel := context.WithCancel(t.Context())
			r.hold <- struct{}{} // the first write is committed
			r.write(ctx, "a")
			cancel()
			time.Sleep(time.Minute)
			r.finish()
			r.check(t, []string{"first", "a"}, map[string]error{"a": want})
		})
	}
}

func TestWhatNobodyWaitsForIsNotRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(o *groupcommit.Options[*write]) { o.Patience, o.Grace = time.Hour, time.Minute })
		r.hold <- struct{}{} // the first write is committed
		synctest.Wait()
		r.busy = 4
		ctx, cancel := context.WithCancel(t.Context())
		r.write(ctx, "a")
		cancel()
		synctest.Wait()
		close(r.hold)
		time.Sleep(time.Second)
		close(r.closing)
		r.callers.Wait()
		r.check(t, []string{"first"}, map[string]error{"a": context.Canceled})
	})
}

func TestCloseCommitsWhatWaitsAndRefusesTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, none)
		r.write(t.Context(), "a", "b")
		close(r.closing)
		r.write(t.Context(), "late")
		close(r.hold)
		r.callers.Wait()
		r.check(t, []string{"first", "a b"}, map[string]error{"late": errClosed})
	})
}

func TestEveryWriteIsFinishedBeforeItsCallerIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var finished []string
		r := newRig(t, func(o *groupcommit.Options[*write]) {
			o.Finished = func(w *write, err error) { finished = append(finished, fmt.Sprint(w.name, " ", err)) }
			o.AfterGroup = func(context.Context) { finished = append(finished, "group") }
		})
		r.write(t.Context(), "a", "refused")
		r.finish()
		if want := []string{"first <nil>", "group", "a <nil>", "refused " + "refused", "group"}; !slices.Equal(finished, want) {
			t.Errorf("finished %q, want %q", finished, want)
		}
	})
}
