//go:build linux

package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/powercut"
	"github.com/dormouse-run/dormouse/e2e/rig"
)

// cutSeed decides when the power fails and what the disk kept all the same.
const cutSeed = 20

func TestAcknowledgedPromptsSurviveAPowerCut(t *testing.T) {
	t.Parallel()
	const cuts = 12
	g := newGrid(t, built, cutSeed)
	for n := range cuts {
		if lost := g.cut(); len(lost) > 0 {
			t.Fatalf("cut %d of seed %d: of %d acknowledged prompts these are lost: %v", n, cutSeed, g.acknowledged(), lost)
		}
		g.check()
	}
	if n := g.acknowledged(); n < 10*cuts {
		t.Errorf("%d prompts in %d cuts are too few to mean anything", n, cuts)
	} else {
		t.Logf("%d acknowledged prompts survived %d cuts that lost %d pages", n, cuts, g.pages)
	}
}

// TestNormalSyncWouldBeCaught: what commits without waiting for the disk does
// lose what was acknowledged, and the test above sees it.
func TestNormalSyncWouldBeCaught(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	mutant, err := rig.Build(t.Context(), dir, "mutant_sync_normal")
	must(t, err)
	const cuts = 5
	g := newGrid(t, mutant, cutSeed)
	for range cuts {
		if len(g.cut()) > 0 {
			return
		}
	}
	t.Errorf("none of %d prompts was lost in %d cuts", g.acknowledged(), cuts)
}

// grid is a server on a disk whose power fails, and clients that remember what
// it told them.
type grid struct {
	t       *testing.T
	rng     *rand.Rand
	models  *rig.Models
	server  *rig.Server
	real    string // where what is durable is
	pages   int    // lost so far
	clients []*asker
}

// asker sends prompts to a session of its own, one after the other.
type asker struct {
	session dormouse.SessionID
	sent    int

	mu   sync.Mutex
	acks map[dormouse.EventID]bool // guarded by mu
}

func newGrid(t *testing.T, binary rig.Binary, seed uint64) *grid {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	if _, err := os.Stat("/dev/fuse"); err != nil {
		t.Skip("there is no /dev/fuse")
	}
	dir, err := rig.TempDir("dormouse-cut-")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	models, err := rig.NewModels()
	must(t, err)
	t.Cleanup(models.Close)
	g := &grid{
		t: t, rng: rand.New(rand.NewPCG(seed, 0)), models: models, real: filepath.Join(dir, "disk"), //nolint:gosec // from a seed on purpose
		server: &rig.Server{Binary: binary, Data: filepath.Join(dir, "data"), Model: models.URL(), Log: filepath.Join(dir, "log")},
	}
	for _, d := range []string{g.real, g.server.Data} {
		must(t, os.Mkdir(d, 0o700))
	}
	const clients = 4
	for range clients {
		g.clients = append(g.clients, &asker{acks: make(map[dormouse.EventID]bool)})
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the server said:\n%s", g.server.Tail())
		}
	})
	return g
}

func (g *grid) acknowledged() int {
	n := 0
	for _, c := range g.clients {
		n += len(c.acks)
	}
	return n
}

// cut serves for a while, fails, and returns what the server had acknowledged
// and the next one does not know.
func (g *grid) cut() []dormouse.EventID {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	disk, err := powercut.Mount(g.real, g.server.Data)
	must(g.t, err)
	defer func() { must(g.t, disk.Close()) }()
	life, err := g.server.Start(ctx, rig.Arm{}, "")
	must(g.t, err)
	defer life.Kill()
	keeper := rig.Fixed(g.server, life)
	client := keeper.Client()
	defer client.Close()

	var asking sync.WaitGroup
	for _, c := range g.clients {
		if c.session == "" {
			s, err := client.Create(ctx, "", cold, "")
			must(g.t, err)
			c.session = s.ID
		}
		asking.Go(func() { c.ask(ctx, client) })
	}
	time.Sleep(time.Duration(20+g.rng.IntN(200)) * time.Millisecond)
	life.Kill()
	asking.Wait()
	g.server.KillSandboxes()
	g.pages += disk.Unsynced()
	// Half of the cuts drop everything; the others as a disk does it.
	var keep func() bool
	if g.rng.IntN(2) == 0 {
		keep = func() bool { return g.rng.IntN(2) == 0 }
	}
	must(g.t, disk.Cut(keep))
	return nil
}

// ask sends prompts until the server is gone.
func (c *asker) ask(ctx context.Context, client *rig.Client) {
	for ctx.Err() == nil {
		c.sent++
		id := fmt.Sprint(c.sent)
		body := options{"content": fmt.Sprintf("prompt %d of %s", c.sent, c.session), "id": id}
		status, err := client.Once(ctx, http.MethodPost, "/api/sessions/"+string(c.session)+"/prompts", body, nil)
		if errors.Is(err, rig.ErrCut) {
			return
		}
		if err == nil && status == http.StatusAccepted {
			c.mu.Lock()
			c.acks[dormouse.PromptID(c.session, id)] = true
			c.mu.Unlock()
		}
	}
}

// check lays every row out again from the logs.
func (g *grid) check() {
	g.t.Helper()
	out, err := exec.Command(g.server.Binary.Server, "store", "rebuild", "--check", "--data", g.real).CombinedOutput()
	if err != nil {
		g.t.Errorf("rebuild --check: %v\n%s", err, out)
	}
}
