package matrix

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/harness/play"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/e2e/oracle"
	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/internal/sleep"
)

// Case is one kind of session, and the points at which its servers are told to die, one
// after the other.
type Case struct {
	Kind play.Kind
	Arms []rig.Arm
	// Frozen is how long a frozen server is stopped, unless another server ends it before.
	// With 0 no other server ends it, as where servers cannot reach each other's processes,
	// and it continues once another server has taken all its sessions.
	Frozen time.Duration
	// Name is what the case is called, if it has a name.
	Name string
	// N is the number of the case in this run.
	N int
}

func (c Case) String() string {
	if c.Name != "" {
		return fmt.Sprintf("%s (%s %s, %s)", c.Name, c.Kind.Name, rig.FormatArms(c.Arms), c.Frozen)
	}
	return fmt.Sprintf("%s %s", c.Kind.Name, rig.FormatArms(c.Arms))
}

// Outcome is what became of a case.
type Outcome struct {
	Case
	// Reached says that every server died at the point it was told to.
	Reached  bool
	Died     []rig.Arm
	Findings oracle.Findings
	Err      error // the rig itself failed
	Dir      string
	Took     time.Duration
	// Tail is the end of the log, for a case that failed.
	Tail []dormouse.Event
}

// OK reports whether nothing is wrong.
func (o Outcome) OK() bool { return o.Err == nil && o.Findings.OK() }

// stage is one case with everything it needs around it.
type stage struct {
	*Matrix
	c      Case
	dir    string
	hits   bool // record the crash points that every life visits
	fleet  *rig.Fleet
	keeper *rig.Keeper // of the server that dies
	play   *play.Play
	out    *Outcome
	events []dormouse.Event // the log when it was last read
	counts []map[crash.Point]int
}

// run executes a case to its end and judges it.
func (m *Matrix) run(ctx context.Context, c Case, hits bool) (out Outcome, visits []map[crash.Point]int) {
	begin := time.Now()
	out = Outcome{Case: c, Findings: make(oracle.Findings)}
	s := &stage{Matrix: m, c: c, hits: hits, out: &out}
	s.dir = filepath.Join(m.dir, fmt.Sprintf("case-%d", c.N))
	if hits {
		s.dir += "-looked"
	}
	out.Dir = s.dir
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("the case took too long"))
	defer cancel()
	if err := s.perform(ctx); err != nil {
		switch {
		case ctx.Err() != nil || errors.Is(err, errStuck):
			out.Findings.Add(oracle.Stuck, "%v", err)
		default:
			out.Err = err
		}
	}
	out.Tail = s.events[max(0, len(s.events)-25):]
	if out.OK() && !m.Keep {
		_ = os.RemoveAll(s.dir)
	}
	out.Took = time.Since(begin)
	return out, s.counts
}

// witness records the effects of commands in the sandboxes of a data directory.
func (s *stage) witness(data string) (*rig.Witness, error) {
	if err := os.MkdirAll(data, 0o700); err != nil {
		return nil, err
	}
	if s.Sandbox == rig.GVisor {
		return rig.NewWitnessInside(data)
	}
	return rig.NewWitness(filepath.Join(s.dir, "world"))
}

func (s *stage) perform(ctx context.Context) (err error) {
	tag := fmt.Sprintf("case-%d", s.c.N)
	data := filepath.Join(s.dir, "data")
	w, err := s.witness(data)
	if err != nil {
		return err
	}
	defer w.Close()
	if s.Past != "" {
		if err := rig.Unpack(ctx, s.Past, data); err != nil {
			return err
		}
	}
	store, drop, err := s.stores.Make(ctx)
	if err != nil {
		return err
	}
	defer drop()
	s.play = &play.Play{Witness: w, Models: s.models, Name: tag, Clock: filepath.Join(s.dir, "clock"), Boot: filepath.Join(s.dir, "boot")}
	if store.Shared() || w.Inside { // its clock is not that of the test
		s.play.Slack = slack
	}
	freezes := s.c.Kind.Freezes || slices.ContainsFunc(s.c.Arms, func(a rig.Arm) bool { return a.Death == crash.Freeze })
	frozen, env := thaw, append([]string{"DORMOUSE_CLOCK=" + s.play.Clock, "DORMOUSE_BOOT=" + s.play.Boot}, s.c.Kind.Env...)
	switch {
	case s.c.Frozen > 0:
		frozen = s.c.Frozen
	case freezes:
		env = append(env, "DORMOUSE_WITHOUT=fencing")
	}
	s.fleet = rig.NewFleet(ctx, rig.Server{
		Binary: s.Binary, Data: data, Store: store, Sandbox: s.Sandbox, Model: s.models.URL(), Thaw: frozen,
		Flags: slices.Concat([]string{"--log-level", "debug", "--sandbox-disk", "0"}, s.c.Kind.Flags), Env: env,
		Log: filepath.Join(s.dir, "server.log"),
	}, max(s.c.Kind.Servers, 1), s.c.Arms)
	s.keeper = s.fleet.Keepers[0]
	s.keeper.Hits = s.hitsOf
	if s.c.Kind.KillsRunner {
		// D12: what the server started dies too, before a new server attaches to it.
		s.keeper.Between = func(n int) {
			if n == 0 {
				s.keeper.KillPart(s.c.Kind.Part)
			}
		}
	}
	if s.c.Kind.Steered {
		s.fleet.Steer(s.keeper)
	}
	s.fleet.Run()
	client := s.fleet.Client()
	if freezes || s.c.Kind.Hangs {
		client.Patience = patience
	}
	client.Panics = slices.ContainsFunc(s.c.Arms, func(a rig.Arm) bool { return a.Death == crash.Panic })
	s.play.Keeper, s.play.Fleet = s.keeper, s.fleet
	defer func() {
		s.play.Close()
		s.fleet.Close()
		client.Close()
		err = errors.Join(err, s.keeper.Clear())
		s.models.Forget(tag)
	}()
	if err = s.drive(ctx, client); err == nil {
		err = s.again(ctx)
	}
	if err != nil && s.play.Session != nil {
		look, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if log, err := s.play.Events(look); err == nil {
			s.events = log // for the report of the failure
		}
	}
	return err
}

const (
	// slack is how far the clock of a database, or of a sandbox's kernel, may be off.
	slack = 100 * time.Millisecond
	// thaw is how long a frozen server is stopped: long enough for other servers to take
	// all its sessions.
	thaw = lease * 5 / 2
	// patience is how long a client waits for a server that may be frozen.
	patience = 500 * time.Millisecond
)

// hitsOf names the file that records the points of life n, if it is needed: for a run that
// collects them, or because only they tell whether a runner died, or a server panicked.
func (s *stage) hitsOf(n int) string {
	if !s.hits && (n >= len(s.c.Arms) || !quiet(s.c.Arms[n])) {
		return ""
	}
	return filepath.Join(s.dir, "hits-"+strconv.Itoa(n))
}

// quiet reports whether a death may leave the server alive.
func quiet(a rig.Arm) bool { return a.InRunner() || a.Death == crash.Panic }

// visits counts the points that each life visited.
func (s *stage) visits() []map[crash.Point]int {
	var all []map[crash.Point]int
	for n := 0; ; n++ {
		b, err := os.ReadFile(filepath.Join(s.dir, "hits-"+strconv.Itoa(n)))
		if err != nil {
			return all
		}
		counts := make(map[crash.Point]int)
		for line := range strings.Lines(string(b)) {
			counts[crash.Point(strings.TrimSpace(line))]++
		}
		all = append(all, counts)
	}
}

var errStuck = errors.New("not settled in time")

// within runs f, and reports the session as stuck if that takes too long.
func within(ctx context.Context, what string, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, play.SettleWithin, errStuck)
	defer cancel()
	if err := f(ctx); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// drive runs the session through its scenario and the deaths, and judges the result.
func (s *stage) drive(ctx context.Context, client *rig.Client) error {
	p, kind := s.play, s.c.Kind
	if err := p.Start(ctx, client, kind, s.c.N%2 == 0); err != nil {
		return err
	}
	if err := kind.Play(ctx, p); err != nil {
		return fmt.Errorf("play: %w", err)
	}
	if err := within(ctx, "after the faults", func(ctx context.Context) error { return p.Rest(ctx, kind.Decide) }); err != nil {
		return err
	}
	if err := s.bounded(ctx); err != nil {
		return err
	}
	s.reached()
	s.keeper.Disarm()
	// A life that did not die where it was told to is replaced by one without such an
	// order.
	if err := within(ctx, "after the last fault", func(ctx context.Context) error { return p.Rest(ctx, kind.Decide) }); err != nil {
		return err
	}
	if err := within(ctx, "a new prompt", s.probe); err != nil {
		return err
	}
	if err := s.look(ctx); err != nil {
		return err
	}
	return s.judge(ctx)
}

// bounded checks the time from the beginning of a freeze until another server continues the
// session against the promised bound, however long the freeze lasts.
func (s *stage) bounded(ctx context.Context) error {
	at, froze := s.keeper.Froze()
	if s.c.Frozen == 0 || !froze {
		return nil
	}
	took := time.Since(at)
	log, err := s.play.Events(ctx)
	if err != nil && !rig.Missing(err) { // a deleted session has none
		return err
	}
	for _, e := range log {
		if e.Time.After(at.Add(slack)) { // a frozen server writes nothing
			took = e.Time.Sub(at)
			break
		}
	}
	if took > lease+play.SettleWithin {
		s.out.Findings.Add(oracle.Stuck, "nobody went on with the session for %s from the beginning of the freeze, which is over the lease and %s", took.Round(time.Millisecond), play.SettleWithin)
	}
	return nil
}

// reached records which of the deaths happened.
func (s *stage) reached() {
	s.counts = s.visits() // later visits are caused by the checks and not by the scenario
	s.out.Died = slices.DeleteFunc(s.keeper.Died(), quiet)
	armed := 0
	for n, a := range s.c.Arms {
		if a.Point == "" {
			continue
		}
		armed++
		if !quiet(a) {
			continue
		}
		b, _ := os.ReadFile(s.hitsOf(n)) // no file: nothing was visited
		visits := 0
		for line := range strings.Lines(string(b)) {
			if strings.TrimSpace(line) == string(a.Point) {
				visits++
			}
		}
		if visits >= max(a.Visit, 1) {
			s.out.Died = append(s.out.Died, a)
		}
	}
	s.out.Reached = len(s.out.Died) == armed
}

// probe checks that the session accepts a prompt and works on it, or that it is terminated
// and says so.
func (s *stage) probe(ctx context.Context) error {
	p := s.play
	shown, err := p.Show(ctx)
	if rig.Missing(err) {
		return nil // it was deleted, which is judged
	}
	if err != nil {
		return err
	}
	err = p.Prompt(ctx, "probe", p.Script(rig.Say("still here")))
	if shown.Phase == dormouse.PhaseTerminated {
		if r := rig.Refused(err); r == nil || r.Code != "terminated" {
			s.out.Findings.Add(oracle.Diverged, "a terminated session answered a prompt with %v", err)
		}
		return nil
	}
	if err != nil {
		return err
	}
	return p.Rest(ctx, s.c.Kind.Decide)
}

// look has a person see what became of the work.
func (s *stage) look(ctx context.Context) error {
	if s.c.Kind.Look == nil {
		return nil
	}
	if err := s.c.Kind.Look(s.play, ctx); err != nil {
		return fmt.Errorf("a look: %w", err)
	}
	return nil
}

func (s *stage) judge(ctx context.Context) error {
	found, log, err := s.play.Judge(ctx)
	if err != nil {
		return err
	}
	s.events = log
	s.out.Findings.Merge(found)
	return nil
}

// swept waits until nothing is there of sandboxes that no session has.
func (s *stage) swept(ctx context.Context) error {
	return within(ctx, "sweeping sandboxes", func(ctx context.Context) error {
		for {
			left := s.keeper.Strays()
			if len(left) == 0 {
				return nil
			}
			if err := sleep.For(ctx, 20*time.Millisecond); err != nil {
				return fmt.Errorf("%v belong to no session: %w", left, err)
			}
		}
	})
}

// checkBlobs checks that all blobs that files need are there and, where they are
// collected, no others.
func (s *stage) checkBlobs(ctx context.Context) error {
	if s.c.Kind.Collects {
		if err := within(ctx, "collecting layers", s.play.Collected); err != nil {
			return err
		}
	}
	named, err := s.play.Named(ctx)
	if err != nil {
		return err
	}
	for _, text := range s.keeper.LostBlobs(named) {
		s.out.Findings.Add(oracle.Lost, "%s", text)
	}
	return nil
}

// fallsAsleep reports whether an event is of a sandbox that falls asleep by itself: it stops,
// and then its workspace is sealed.
func fallsAsleep(e dormouse.Event) bool {
	var p struct {
		Reason string `json:"reason"`
	}
	_ = json.Unmarshal(e.Payload, &p)
	switch e.Type { //nolint:exhaustive // the others are none of it
	case dormouse.SnapshotTaken:
		return p.Reason == dormouse.SnapshotSealing
	case dormouse.WorkspaceSwapped:
		return p.Reason == dormouse.SwapSealed
	}
	return strings.HasPrefix(string(e.Type), "sandbox.")
}

// again stops the server, starts it once more and finds everything as it was.
func (s *stage) again(ctx context.Context) error {
	if err := s.fleet.Halt(ctx); err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	for _, text := range s.fleet.Crashes() {
		s.out.Findings.Add(oracle.Stuck, "%s", text)
	}
	const sample = 10
	if s.c.N%sample == 0 || s.Past != "" {
		wrong, err := s.keeper.Check(ctx)
		if err != nil {
			return err
		}
		if wrong != "" {
			s.out.Findings.Add(oracle.Diverged, "%s", wrong)
		}
	}
	if s.c.Kind.Collects {
		if err := s.keeper.Age(); err != nil {
			return err
		}
	}
	s.fleet.Resume()
	if err := within(ctx, "after a restart", s.play.Settle); err != nil {
		return err
	}
	if err := s.checkBlobs(ctx); err != nil {
		return err
	}
	before := s.events
	if err := s.judge(ctx); err != nil {
		return err
	}
	for i, e := range s.events {
		switch {
		case i < len(before):
			if !cmp.Equal(e, before[i]) {
				s.out.Findings.Add(oracle.Diverged, "event %d changed over a restart", e.Seq)
			}
		case s.c.Kind.Create["sleep_after"] != nil && fallsAsleep(e):
		default:
			s.out.Findings.Add(oracle.Diverged, "a restart of a session at rest added event %d %s", e.Seq, e.Type)
		}
	}
	if len(s.events) < len(before) {
		s.out.Findings.Add(oracle.Lost, "a restart lost %d events", len(before)-len(s.events))
	}
	if err := s.swept(ctx); err != nil || s.c.Kind.Look == nil {
		return err
	}
	if err := s.look(ctx); err != nil {
		return err
	}
	return s.judge(ctx)
}
