package session_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/session/fleet"
	"github.com/dormouse-run/dormouse/session/law"
	"github.com/dormouse-run/dormouse/session/visit"
)

// The fake sandbox can be visited. It has a port whose number is its generation.
var _ sandbox.Machine = (*fakeLink)(nil)

var errNoStreams = errors.New("a fake sandbox has no streams")

func (l *fakeLink) lives() error {
	l.home.mu.Lock()
	defer l.home.mu.Unlock()
	switch {
	case l.dead:
		return sandbox.ErrGone
	case l.epoch < l.fakeBox.epoch:
		return runner.ErrStale
	}
	return nil
}

func (l *fakeLink) Open(context.Context, runner.Stream) (*runner.Conn, error) {
	return nil, errNoStreams
}

func (l *fakeLink) Ports(context.Context) ([]runner.Port, error) {
	return []runner.Port{{Port: uint16(l.name.Generation)}}, l.lives()
}

func (l *fakeLink) Usage(context.Context) (runner.Usage, error) {
	l.home.mu.Lock()
	u := l.home.usage
	l.home.mu.Unlock()
	if u.Processes == 0 {
		u.Processes, u.Shells = 3, 3
	}
	return u, l.lives()
}

func (l *fakeLink) Terminals(context.Context) ([]runner.TerminalReport, error) { return nil, l.lives() }

func (l *fakeLink) Resize(context.Context, string, uint16, uint16) error { return l.lives() }

func (l *fakeLink) EndTerminal(context.Context, string) error { return l.lives() }

// Ask and Open are the way of visitors between the servers of a cluster.
func (f *cluster) Ask(ctx context.Context, r fleet.Route, e visit.Errand) (visit.Findings, error) {
	m, err := f.reach(r)
	if err != nil {
		return visit.Findings{}, err
	}
	v, err := m.live.ReachHere(ctx, e)
	if err != nil {
		return visit.Findings{}, err
	}
	defer v.Close()
	return v.Run(ctx, e)
}

func (f *cluster) Open(context.Context, fleet.Route, visit.Errand) (visit.Conn, error) {
	return nil, errNoStreams
}

// visit reaches the sandbox and checks which it is.
func (h *house) visit(wake bool, generation uint64) *visit.Visit {
	h.t.Helper()
	v, err := h.live.Reach(h.t.Context(), h.id, wake)
	if err != nil {
		h.t.Fatal(err)
	}
	h.in(v, generation)
	return v
}

func (h *house) in(v *visit.Visit, generation uint64) {
	h.t.Helper()
	ports, err := v.Ports(h.t.Context())
	if err != nil || len(ports) != 1 || uint64(ports[0].Port) != generation || v.Generation() != generation {
		h.t.Errorf("generation %d has ports %+v, %v; want generation %d", v.Generation(), ports, err, generation)
	}
}

// over checks that a visit has ended and says why.
func (h *house) over(v *visit.Visit, is error, says string) {
	h.t.Helper()
	select {
	case <-v.Life().Done():
	default:
		h.t.Fatal("the visit goes on")
	}
	_, err := v.Usage(h.t.Context())
	for _, err := range []error{v.Err(), err} {
		if !errors.Is(err, is) || !strings.Contains(err.Error(), says) {
			h.t.Errorf("it ended with %v", err)
		}
	}
}

func TestAVisitWakesTheSandboxOnlyIfItMay(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{})
		if _, err := h.live.Reach(t.Context(), h.id, false); !errors.Is(err, dormouse.ErrConflict) || !strings.Contains(err.Error(), "wake it first") {
			t.Errorf("a cold one: %v", err)
		}
		v := h.visit(true, 1)
		defer v.Close()
		again := h.visit(false, 1)
		again.Close()
		h.over(again, dormouse.ErrConflict, "the visit is over")
		h.in(v, 1)
		if _, err := v.Open(t.Context(), visit.Stream{}); !errors.Is(err, dormouse.ErrInvalid) {
			t.Errorf("a stream of nothing: %v", err)
		}
		if _, err := v.Open(t.Context(), visit.Stream{Port: &visit.PortStream{Port: 1}}); !errors.Is(err, errNoStreams) {
			t.Errorf("a stream: %v", err)
		}
		h.checked()
	})
}

func TestAVisitEndsWithItsSandbox(t *testing.T) {
	for name, c := range map[string]struct {
		end   func(h *house) error
		is    error
		says  string
		later uint64 // the generation of the next visit
	}{
		"it dies":             {func(h *house) error { h.boxes.kill(1); return nil }, dormouse.ErrConflict, "died", 2},
		"it hibernates":       {func(h *house) error { return h.do(law.Hibernate{}) }, dormouse.ErrConflict, "being stopped", 2},
		"its session ends":    {func(h *house) error { return h.do(law.Terminate{Reason: "x"}) }, dormouse.ErrConflict, "being stopped", 0},
		"the server goes":     {func(h *house) error { h.live.EndFollowers(); return nil }, dormouse.ErrClosing, "", 0},
		"the server is taken": {func(h *house) error { h.crash(); return h.do(law.Wake{}) }, nil, "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			live(t, func(t *testing.T, h *house) {
				h.create(dormouse.Created{})
				v := h.visit(true, 1)
				defer v.Close()
				if err := c.end(h); err != nil {
					t.Fatal(err)
				}
				settle(time.Second)
				if c.is != nil {
					h.over(v, c.is, c.says)
				} else if _, err := v.Usage(t.Context()); !errors.Is(err, dormouse.ErrConflict) {
					t.Errorf("of the next server's sandbox it was told %v", err)
				}
				if c.later != 0 {
					h.visit(true, c.later).Close()
					return
				}
				_, err := h.live.Reach(t.Context(), h.id, true)
				if !errors.Is(err, dormouse.ErrTerminated) && !errors.Is(err, dormouse.ErrClosing) {
					t.Errorf("reached after the end: %v", err)
				}
			})
		})
	}
}

func TestAVisitorIsToldThatNoSandboxCanBeHad(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{})
		h.boxes.setBroken(errors.New("no room"))
		if _, err := h.live.Reach(t.Context(), h.id, true); !errors.Is(err, dormouse.ErrConflict) || !strings.Contains(err.Error(), "no room") {
			t.Errorf("told %v", err)
		}
		h.boxes.setBroken(nil)
		h.visit(true, 2).Close()
	})
}

func TestWhoStopsWaitingForASandboxHoldsNothing(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.boxes.slow = time.Minute / 2
		h.create(dormouse.Created{SleepAfter: time.Minute})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := h.live.Reach(ctx, h.id, true); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("told %v", err)
		}
		settle(10 * time.Minute)
		if h.phase() != dormouse.PhaseHibernated || h.live.Loaded() != 0 {
			t.Errorf("%s, %d loaded", h.phase(), h.live.Loaded())
		}
	})
}

func TestAVisitWaitsForAStopThatIsUnderWay(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{})
		h.visit(true, 1).Close()
		if err := h.do(law.Hibernate{}); err != nil {
			t.Fatal(err)
		}
		h.visit(true, 2).Close()
	})
}

func TestVisitsAreLimited(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{})
		var all []*visit.Visit
		for range 64 {
			all = append(all, h.visit(true, 1))
		}
		if _, err := h.live.Reach(t.Context(), h.id, true); !errors.Is(err, dormouse.ErrConflict) || !strings.Contains(err.Error(), "64") {
			t.Errorf("one more: %v", err)
		}
		all[0].Close()
		all[0] = h.visit(true, 1)
		for _, v := range all {
			v.Close()
		}
	})
}

func TestAVisitKeepsItsSessionLoaded(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{})
		v := h.visit(true, 1)
		defer v.Close()
		settle(time.Hour)
		h.in(v, 1)
	})
}

func TestAVisitLeadsToTheServerThatOwnsTheSession(t *testing.T) {
	together(t, 2, func(t *testing.T, f *cluster) {
		owner, other := f.servers[0], f.servers[1]
		owner.create(dormouse.Created{})
		owner.visit(true, 1).Close()
		v := other.on(owner).visit(true, 1)
		defer v.Close()
		settle(0) // a call that looks for the owner releases what it has looked at
		if n := other.live.Loaded(); n != 0 {
			t.Errorf("%d sessions were loaded to visit them", n)
		}
		if err := owner.do(law.Hibernate{}); err != nil {
			t.Fatal(err)
		}
		settle(time.Second)
		if _, err := v.Ports(t.Context()); !errors.Is(err, dormouse.ErrConflict) {
			t.Errorf("of a sandbox that is gone: %v", err)
		}
		if _, err := other.live.Reach(t.Context(), other.id, false); !errors.Is(err, dormouse.ErrConflict) {
			t.Errorf("a cold one: %v", err)
		}
		next := other.visit(true, 2)
		defer next.Close()
		if _, err := v.Ports(t.Context()); !errors.Is(err, dormouse.ErrConflict) {
			t.Errorf("a visit went on in another sandbox: %v", err)
		}

		// The other server takes the session, and the sandbox with it.
		owner.kill()
		settle(2 * lease)
		other.visit(true, 2).Close()
		if _, err := next.Ports(t.Context()); err != nil && !errors.Is(err, dormouse.ErrConflict) {
			t.Errorf("a visit to a server that is gone: %v", err)
		}
	})
}

func (noPeers) Ask(context.Context, fleet.Route, visit.Errand) (visit.Findings, error) {
	return visit.Findings{}, fleet.ErrUnreached
}

func (noPeers) Open(context.Context, fleet.Route, visit.Errand) (visit.Conn, error) {
	return nil, fleet.ErrUnreached
}
