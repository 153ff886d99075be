package session_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/session"
)

// rooms is a driver whose sandboxes differ. What an environment leaves open it
// completes with usual.
type rooms struct {
	*boxes
	usual dormouse.Environment
	leads string // where every image leads now
	// missing is what could not be installed.
	missing string
	specs   []sandbox.Spec
}

func inRooms(usual dormouse.Environment) (*rooms, func(*house)) {
	r := &rooms{usual: usual, leads: "sha256:a"}
	return r, func(h *house) { r.boxes, h.kind = h.boxes, r }
}

func (r *rooms) ResolveEnvironment(e dormouse.Environment) (dormouse.Environment, error) {
	if e.Limits.Memory > r.usual.Limits.Memory {
		return e, fmt.Errorf("limits.memory is too much: %w", dormouse.ErrInvalid)
	}
	if e.Image == "" {
		e.Image = r.usual.Image
	}
	if e.Network == "" {
		e.Network = r.usual.Network
	}
	e.Limits = e.Limits.Or(r.usual.Limits)
	return e, nil
}

func (r *rooms) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	s, err := r.boxes.Create(ctx, spec)
	if err != nil {
		return nil, err
	}
	link, ok := s.(*fakeLink)
	if !ok {
		return nil, errors.New("another kind of link")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.specs = append(r.specs, spec)
	image := spec.Image
	if image == "" {
		image = r.leads
	}
	return imagedLink{link, image, r.missing}, nil
}

// last is what was asked for last.
func (r *rooms) last() sandbox.Spec {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.specs[len(r.specs)-1]
}

type imagedLink struct {
	*fakeLink
	image, missing string
}

func (l imagedLink) ImageDigest() string     { return l.image }
func (l imagedLink) MissingPackages() string { return l.missing }

var usual = dormouse.Environment{Image: "debian", Network: dormouse.NetworkOn, Limits: dormouse.Limits{CPUs: 2, Memory: 4 << 30}}

func TestAnEnvironmentIsWhatItWasWhenItsSessionWasMade(t *testing.T) {
	r, change := inRooms(usual)
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{Warm: true, SleepAfter: time.Minute, Environment: dormouse.Environment{Network: dormouse.NetworkOff}})
		settle(time.Second)
		want := usual
		want.Network = dormouse.NetworkOff
		if diff := cmp.Diff(want, r.last().Environment); diff != "" {
			t.Errorf("first (-want +got):\n%s", diff)
		}
		if r.last().Image != "" {
			t.Errorf("nobody knew the digest, and it was asked for %q", r.last().Image)
		}
		// The flags change, the tag moves, the server dies.
		r.usual = dormouse.Environment{Image: "alpine", Network: dormouse.NetworkOn, Limits: dormouse.Limits{CPUs: 1, Memory: 1 << 30}}
		r.leads = "sha256:b"
		settle(2 * time.Minute)
		h.crash()
		h.mustPrompt("p", script("effect a"))
		settle(time.Minute)
		if got := r.last(); got.Fence.Generation != 2 || !got.Environment.Equal(want) || got.Image != "sha256:a" {
			t.Errorf("then %+v", got)
		}
		state, err := h.live.Peek(t.Context(), h.id)
		if err != nil || !state.Environment.Equal(want) || state.Image != "sha256:a" {
			t.Errorf("it is known as %+v, %q, %v", state.Environment, state.Image, err)
		}
		for _, e := range h.checked() {
			var fact dormouse.SandboxFact
			if e.Type == dormouse.SandboxStarted && (json.Unmarshal(e.Payload, &fact) != nil || fact.Image != "sha256:a") {
				t.Errorf("%s says %s", e.Type, e.Payload)
			}
		}
	}, change)
}

func TestAChildHasTheEnvironmentOfItsParent(t *testing.T) {
	_, change := inRooms(usual)
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{Agent: everyTool(), Environment: dormouse.Environment{Image: "app", Network: dormouse.NetworkOff}})
		parent, err := h.live.Peek(t.Context(), h.id)
		if err != nil {
			t.Fatal(err)
		}
		h.mustPrompt("p", grow(grow(`SCRIPT[{"text":"leaf"}]`)))
		settle(time.Minute)
		child := dormouse.Created{Parent: h.id, Recovery: dormouse.RecoverAuto, Agent: everyTool()}
		if _, err := h.live.Create(t.Context(), dormouse.User("ada"), child); err != nil {
			t.Fatal(err)
		}
		tree := h.tree()
		if len(tree) != 4 {
			t.Fatalf("the tree has %d sessions", len(tree))
		}
		for _, id := range tree {
			if s, err := h.live.Peek(t.Context(), id); err != nil || !s.Environment.Equal(parent.Environment) || s.Environment.Image != "app" {
				t.Errorf("%s has %+v, %v", id, s.Environment, err)
			}
		}
		child.Environment.Network = dormouse.NetworkOn
		if _, err := h.live.Create(t.Context(), dormouse.User("ada"), child); !errors.Is(err, dormouse.ErrInvalid) {
			t.Errorf("a child with an environment of its own: %v", err)
		}
	}, change)
}

func TestWhatADriverCannotMakeIsRefusedBeforeThereIsASession(t *testing.T) {
	_, change := inRooms(usual)
	more := dormouse.Environment{Limits: dormouse.Limits{Memory: 8 << 30}}
	for name, c := range map[string]struct {
		change func(*house)
		ask    dormouse.Environment
		says   string
	}{
		"too much":          {change, more, "environment: limits.memory"},
		"nonsense":          {change, dormouse.Environment{Network: "maybe"}, "environment: network"},
		"all are alike":     {func(*house) {}, more, "all alike"},
		"alike without net": {func(*house) {}, dormouse.Environment{Network: dormouse.NetworkOff}, "all alike"},
	} {
		t.Run(name, func(t *testing.T) {
			live(t, func(t *testing.T, h *house) {
				_, err := h.live.Create(t.Context(), dormouse.User("ada"), dormouse.Created{
					Recovery: dormouse.RecoverAuto, Agent: everyTool(), Environment: c.ask,
				})
				if !errors.Is(err, dormouse.ErrInvalid) || !strings.Contains(err.Error(), c.says) {
					t.Errorf("got %v", err)
				}
				if rows, err := h.live.List(t.Context(), session.Query{Limit: 10}); err != nil || len(rows) > 0 {
					t.Errorf("there are %d sessions, %v", len(rows), err)
				}
			}, c.change)
		})
	}
}

func TestASessionLivesOnWhenItsImageCannotBeFetched(t *testing.T) {
	r, change := inRooms(usual)
	live(t, func(t *testing.T, h *house) {
		h.boxes.setBroken(errors.New("no such image"))
		h.create(dormouse.Created{Warm: true, Environment: dormouse.Environment{Image: "none"}})
		settle(time.Minute)
		if state, err := h.live.Peek(t.Context(), h.id); err != nil || state.Attention() == nil || !strings.Contains(state.Attention().Reason, "no such image") {
			t.Errorf("it says %+v, %v", state.Attention(), err)
		}
		h.boxes.setBroken(nil)
		h.mustPrompt("p", script("effect a"))
		settle(time.Minute)
		if h.boxes.effect("a") != 1 || r.last().Environment.Image != "none" {
			t.Errorf("effects %d, in %+v", h.boxes.effect("a"), r.last())
		}
		h.checked()
	}, change)
}

func TestWhichPackagesAreMissingIsTold(t *testing.T) {
	r, change := inRooms(usual)
	r.missing = "pip could not install x: exit 1: no such package"
	live(t, func(t *testing.T, h *house) {
		e := dormouse.Environment{Packages: dormouse.Packages{Pip: []string{"x"}}}
		h.create(dormouse.Created{Warm: true, Environment: e})
		h.mustPrompt("p", script("effect a"))
		settle(time.Minute)
		if !r.last().Environment.Packages.Equal(e.Packages) {
			t.Errorf("the sandbox was asked for %+v", r.last().Environment)
		}
		told := 0
		for _, e := range h.checked() {
			var fact dormouse.SandboxFact
			if e.Type == dormouse.SandboxStarted && json.Unmarshal(e.Payload, &fact) == nil && fact.Missing == r.missing {
				told++
			}
		}
		if told != 1 || h.boxes.effect("a") != 1 { // the session goes on
			t.Errorf("told %d times, effects %d", told, h.boxes.effect("a"))
		}
	}, change)
}

func TestTheSmallerOfTwoIdleTimesCounts(t *testing.T) {
	for name, c := range map[string]struct{ session, server, asleep time.Duration }{
		"only the session says":  {5 * time.Minute, 0, 5 * time.Minute},
		"only the server says":   {0, 5 * time.Minute, 5 * time.Minute},
		"the session says less":  {2 * time.Minute, 5 * time.Minute, 2 * time.Minute},
		"the server says less":   {5 * time.Minute, 2 * time.Minute, 2 * time.Minute},
		"neither says anything":  {0, 0, 0},
		"the session says never": {0, time.Minute, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			live(t, func(t *testing.T, h *house) {
				h.create(dormouse.Created{Warm: true, SleepAfter: c.session})
				if c.asleep == 0 {
					settle(24 * time.Hour)
					if h.phase() != dormouse.PhaseReady {
						t.Errorf("it is %s after a day", h.phase())
					}
					return
				}
				settle(c.asleep - 10*time.Second)
				if h.phase() != dormouse.PhaseReady {
					t.Errorf("it is %s too soon", h.phase())
				}
				settle(20 * time.Second)
				if h.phase() != dormouse.PhaseHibernated {
					t.Errorf("it is %s too late", h.phase())
				}
				h.checked()
			}, func(h *house) { h.idle = c.server })
		})
	}
}

func TestTheIdleTimeOfAServerThatDiedCountsOn(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{Warm: true})
		settle(time.Minute)
		h.idle = 0
		h.crash() // the next server was told nothing, and loads only what is due
		settle(5 * time.Minute)
		if h.phase() != dormouse.PhaseHibernated {
			t.Errorf("it is %s", h.phase())
		}
		h.mustPrompt("p", script("effect a"))
		settle(24 * time.Hour)
		if h.phase() != dormouse.PhaseReady || h.boxes.effect("a") != 1 {
			t.Errorf("started by a server without one it is %s", h.phase())
		}
		h.checked()
	}, func(h *house) { h.idle = 5 * time.Minute })
}
