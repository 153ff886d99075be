// Package hibernation hibernates many sessions and wakes them, in real gVisor sandboxes,
// while processes inside write and clients send requests; kills the server and sandboxes
// meanwhile; and compares what is left with what was promised: every byte, every process
// unless the log says that it was lost, and no resource without an owner.
package hibernation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dormouse-run/dormouse/e2e/harness/play"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/e2e/oracle"
	"github.com/dormouse-run/dormouse/internal/sleep"
)

// Config chooses what is done.
type Config struct {
	rig.Binary
	Seed     uint64
	Sessions int
	// Awake is how many of them are awake at once.
	Awake int
	// For is how long they are hibernated and struck.
	For     time.Duration
	Verbose bool
	Out     io.Writer
}

// What a hibernation test counts beside the zeroes of the oracle.
const (
	// Corrupt is a byte that is not what was written there.
	Corrupt = "corrupt"
	// Silent is a process that is gone, and the log does not say that it was lost.
	Silent = "silent"
)

// zeroes are all that is counted, in the order it is printed.
func zeroes() []string {
	return []string{oracle.Lost, oracle.Double, Corrupt, Silent, oracle.Late, oracle.Stuck, oracle.Diverged, oracle.Gaps, oracle.LostWork}
}

// Summary is what it came to.
type Summary struct {
	Config
	// Hibernated and Woken count how often a sandbox was hibernated and started
	// again, Restored and Reported how often with all that ran in it, and how often the log
	// says that this was lost.
	Hibernated, Woken, Restored, Reported int
	// Kills counts servers, Struck sandboxes that were killed.
	Kills, Struck int
	// Records, Commands and Prompts are what was written, asked for and sent.
	Records, Commands, Prompts int
	Findings                   oracle.Findings
	Leaks                      rig.Leaks
	Dir                        string
}

// OK reports whether everything was as promised.
func (s Summary) OK() bool { return s.Findings.OK() && s.Leaks.None() }

func (s Summary) String() string {
	text := fmt.Sprintf("naps: seed=%d sessions=%d minutes=%.3g hibernated=%d woken=%d restored=%d reported=%d kills=%d struck=%d records=%d commands=%d prompts=%d",
		s.Seed, s.Sessions, s.For.Minutes(), s.Hibernated, s.Woken, s.Restored, s.Reported, s.Kills, s.Struck, s.Records, s.Commands, s.Prompts)
	words := []string{text}
	for _, zero := range zeroes() {
		words = append(words, fmt.Sprintf("%s=%d", zero, len(s.Findings[zero])))
	}
	return strings.Join(words, " ") + "\n" + s.Leaks.String()
}

// Wrong lists everything that is.
func (s Summary) Wrong() string {
	var b strings.Builder
	for _, zero := range zeroes() {
		for _, found := range s.Findings[zero] {
			fmt.Fprintf(&b, "%s: %s\n", zero, found)
		}
	}
	for _, leak := range s.Leaks.All() {
		fmt.Fprintf(&b, "leak: %s\n", leak)
	}
	return b.String()
}

// trial is one hibernation test.
type trial struct {
	Config
	dir      string
	keeper   *rig.Keeper
	fleet    *rig.Fleet
	witness  *rig.Witness
	models   *rig.Models
	sleepers []*sleeper
	slots    chan struct{} // one for each that may be awake
	moving   chan string   // a sandbox is about to hibernate, or to wake
	rand     *rand.Rand    // of the strikes
	bouts    atomic.Int64
	begun    time.Time

	mu  sync.Mutex
	sum *Summary // guarded by mu
}

// limits of a sandbox are small, so that many fit a small machine.
var limits = []string{
	"--sandbox-memory", "256M", "--sandbox-disk", "64M", "--sandbox-inodes", "4096", "--sandbox-pids", "64", "--sandbox-cpus", "1", "--drop-after", "2s", "--log-level", "debug",
}

// Run lets sessions sleep and wake, strikes, and judges what is left.
func Run(ctx context.Context, c Config) (Summary, error) {
	n := &trial{
		Config: c, sum: &Summary{Config: c, Findings: make(oracle.Findings)}, begun: time.Now(), rand: rand.New(rand.NewPCG(c.Seed, 3)),
		slots: make(chan struct{}, c.Awake), moving: make(chan string),
	}
	var err error
	if n.dir, err = rig.TempDir("dormouse-naps-*"); err != nil {
		return *n.sum, err
	}
	n.sum.Dir = n.dir
	if n.models, err = rig.NewModels(); err != nil {
		return *n.sum, err
	}
	defer n.models.Close()
	if n.witness, err = rig.NewWitnessOfCopies(filepath.Join(n.dir, "copies")); err != nil {
		return *n.sum, err
	}
	defer n.witness.Close()
	n.fleet = rig.NewFleet(ctx, rig.Server{
		Binary: c.Binary, Data: filepath.Join(n.dir, "data"), Sandbox: rig.GVisor, Model: n.models.URL(), Flags: limits, Log: filepath.Join(n.dir, "server.log"),
	}, 1, nil)
	n.keeper = n.fleet.Keepers[0]
	n.fleet.Run()
	err = errors.Join(n.serve(ctx), n.keeper.Clear())
	if err == nil && n.sum.OK() {
		err = os.RemoveAll(n.dir)
	}
	return *n.sum, err
}

// serve does it all, and ends with no server.
func (n *trial) serve(ctx context.Context) error {
	defer n.fleet.Close()
	if err := n.work(ctx); err != nil {
		return err
	}
	n.judge(ctx)
	for _, s := range n.sleepers {
		s.Close()
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return n.leave(ctx)
}

// work keeps sessions hibernating and waking until the time is over.
func (n *trial) work(ctx context.Context) error {
	over, done := context.WithTimeout(ctx, n.For)
	defer done()
	var running sync.WaitGroup
	errs := make([]error, n.Sessions)
	for i := range n.Sessions {
		s := newSleeper(n, i)
		n.sleepers = append(n.sleepers, s)
		running.Go(func() { errs[i] = s.work(ctx, over) })
	}
	running.Go(func() { n.watchLoops(over) })
	running.Go(func() { n.progress(over) })
	n.strikes(over)
	running.Wait()
	return errors.Join(errs...)
}

// progress prints now and then how far it is.
func (n *trial) progress(ctx context.Context) {
	const often = 15 * time.Second
	for sleep.For(ctx, often) == nil {
		n.mu.Lock()
		wrong := 0
		for _, found := range n.sum.Findings {
			wrong += len(found)
		}
		fmt.Fprintf(n.Out, "naps: %s of %s, %d bouts, %d kills, %d sandboxes struck, %d wrong\n",
			time.Since(n.begun).Round(time.Second), n.For, n.bouts.Load(), n.sum.Kills, n.sum.Struck, wrong)
		n.mu.Unlock()
	}
}

func (n *trial) add(zero, format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sum.Findings.Add(zero, format, args...)
	if n.Verbose {
		fmt.Fprintf(n.Out, "naps: %s: %s\n", zero, fmt.Sprintf(format, args...))
	}
}

// count changes a number of the summary.
func (n *trial) count(f func(*Summary)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f(n.sum)
}

// merge adds what was found of a session.
func (n *trial) merge(s *sleeper, found oracle.Findings) {
	for zero, texts := range found {
		for _, text := range texts {
			n.add(zero, "%s %s: %s", s.Name, s.ID, text)
		}
	}
}

// patience is how long a session may take to do what it is asked, however often
// the server is killed meanwhile.
const patience = 12 * play.SettleWithin
