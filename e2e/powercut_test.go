//go:build linux

package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/harness/powercut"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/internal/sleep"
)

// cutSeed decides when the power fails, and what reached the disk all the same.
const cutSeed = 20

func TestB09AcknowledgedPromptsSurviveAPowerCut(t *testing.T) {
	t.Parallel()
	for seed := range uint64(grids) {
		seed += cutSeed
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			g := newGrid(t, built, seed)
			for n := range cuts {
				lost, err := g.cut()
				must(t, err)
				if len(lost) > 0 {
					t.Fatalf("cut %d: %d prompts were acknowledged, and lost are %v", n, g.acknowledged(), lost)
				}
			}
			g.rest()
			if n := g.acknowledged(); n < 10*cuts || g.pages == 0 {
				t.Errorf("%d prompts in %d cuts that lost %d pages are too few to mean anything", n, cuts, g.pages)
			} else {
				t.Logf("%d prompts survived %d cuts that lost %d pages", n, cuts, g.pages)
			}
		})
	}
}

// grid is a server on a disk whose power fails, and clients that remember what
// it told them.
type grid struct {
	*rig.Keeper
	t       *testing.T
	ctx     context.Context //nolint:containedctx // the test's own
	rng     *rand.Rand
	clients []*asker
	asking  sync.WaitGroup
	stop    func() // ends the load

	mu    sync.Mutex
	disk  *drive // guarded by mu
	pages int    // guarded by mu; lost so far
	err   error  // guarded by mu; of the last cut
}

func newGrid(t *testing.T, binary rig.Binary, seed uint64) *grid {
	t.Helper()
	sources()
	mayMount(t)
	dir, err := rig.TempDir("dormouse-cut-")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	ctx, cancel := context.WithTimeoutCause(context.Background(), patience, errors.New("it took too long"))
	t.Cleanup(cancel)
	models, err := rig.NewModels()
	must(t, err)
	t.Cleanup(models.Close)
	s := &rig.Server{Binary: binary, Data: filepath.Join(dir, "data"), Model: models.URL(), Log: filepath.Join(dir, "log")}
	g := &grid{Keeper: rig.Keep(ctx, s, nil), t: t, ctx: ctx, rng: rand.New(rand.NewPCG(seed, 0))}
	g.disk, err = newDrive(filepath.Join(dir, "disk"), s.Data)
	must(t, err)
	g.Between = func(int) { g.lose() }
	g.Run()
	client := g.Client()
	asking, stop := context.WithCancel(ctx)
	g.stop = func() { stop(); g.asking.Wait() }
	t.Cleanup(func() {
		g.stop()
		client.Close()
		g.Close()
		g.KillSandboxes()
		must(t, g.disk.Close())
		if t.Failed() {
			t.Logf("the server said:\n%s", g.Tail())
		}
	})
	const clients = 3
	for n := range clients {
		session, err := client.Create(ctx, fmt.Sprint(n), cold, "")
		must(t, err)
		a := &asker{Session: session, content: "a prompt", acks: make(map[dormouse.EventID]bool)}
		if n == 0 { // one of them with a sandbox, which loses its power as well
			a.content = rig.Script("", rig.Bash("echo line >> lines"))
		}
		g.clients = append(g.clients, a)
		g.asking.Go(func() { a.ask(asking) })
	}
	return g
}

// rest ends the load and sees that every session still does what it is asked.
func (g *grid) rest() {
	g.t.Helper()
	g.stop()
	for _, c := range g.clients {
		must(g.t, c.Command(g.ctx, "interrupt", options{"flush_queue": true}))
		must(g.t, c.Prompt(g.ctx, "last", c.content))
		shown, err := c.Idle(g.ctx)
		must(g.t, err)
		log, err := c.Events(g.ctx)
		must(g.t, err)
		if n := len(only(log, dormouse.AgentMessage)); n == 0 || shown.Phase == dormouse.PhaseError {
			g.t.Errorf("session %s is %s and has said %d things", c.ID, shown.Phase, n)
		}
	}
}

func (g *grid) acknowledged() int {
	n := 0
	for _, c := range g.clients {
		n += len(c.acknowledged())
	}
	return n
}

// cut fails at a random instant under load and returns what was acknowledged
// and the next server does not know, or what is wrong with all that is left.
func (g *grid) cut() ([]string, error) {
	g.t.Helper()
	life, err := g.Live(g.ctx)
	must(g.t, err)
	for before := g.acknowledged(); g.acknowledged() < before+10; {
		must(g.t, sleep.For(g.ctx, time.Millisecond))
	}
	must(g.t, sleep.For(g.ctx, time.Duration(20+g.rng.IntN(150))*time.Millisecond))
	life.Kill()
	_, err = g.Live(g.ctx)
	must(g.t, err)
	g.mu.Lock()
	err = g.err
	g.mu.Unlock()
	if err != nil {
		return nil, err
	}
	var lost []string
	for _, c := range g.clients {
		lost = append(lost, c.lost(g.ctx, g.t)...)
	}
	return lost, nil
}

// lose is the power failing between two lives. What is left must be sound.
func (g *grid) lose() {
	g.KillSandboxes() // they had the same power
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pages += g.disk.Unsynced()
	// Half of the cuts drop everything, the others as disks do it.
	var keep powercut.Keep
	if g.rng.IntN(2) == 0 {
		keep = g.luck
	}
	g.err = g.disk.lose(g.ctx, g.Binary.Server, keep)
}

// luck has some of it reach the disk, some not, and some in part.
func (g *grid) luck(powercut.Unsynced) int {
	const sector = 512
	switch g.rng.IntN(5) {
	case 0, 1:
		return powercut.PageSize
	case 2:
		return sector * g.rng.IntN(powercut.PageSize/sector)
	}
	return 0
}

// asker sends prompts to a session of its own, one after the other.
type asker struct {
	*rig.Session
	content string

	mu   sync.Mutex
	acks map[dormouse.EventID]bool // guarded by mu
}

// ask sends prompts, each once, until the session is gone or the test is over.
func (a *asker) ask(ctx context.Context) {
	for n := 0; ctx.Err() == nil; n++ {
		id := fmt.Sprint(n)
		status, err := a.Once(ctx, http.MethodPost, a.Path("/prompts"), options{"content": a.content, "id": id}, nil)
		switch r := rig.Refused(err); {
		case err == nil && status == http.StatusAccepted:
			a.mu.Lock()
			a.acks[dormouse.PromptID(a.ID, id)] = true
			a.mu.Unlock()
		case r != nil && r.Status == http.StatusNotFound:
			return
		}
	}
}

func (a *asker) acknowledged() []dormouse.EventID {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := make([]dormouse.EventID, 0, len(a.acks))
	for id := range a.acks {
		all = append(all, id)
	}
	return all
}

// lost is what was acknowledged and is not in the log.
func (a *asker) lost(ctx context.Context, t *testing.T) []string {
	t.Helper()
	acks := a.acknowledged() // before the log is read: the clients go on
	log, err := a.Events(ctx)
	if r := rig.Refused(err); r != nil && r.Status == http.StatusNotFound {
		return []string{"all of " + string(a.ID)}
	}
	must(t, err)
	known := make(map[dormouse.EventID]bool)
	for _, e := range only(log, dormouse.PromptQueued) {
		known[e.ID] = true
	}
	var lost []string
	for _, id := range acks {
		if !known[id] {
			lost = append(lost, string(id))
		}
	}
	return lost
}
