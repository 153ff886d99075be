//go:build linux

package wall

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/internal/sleep"
)

// mostFloodLines is what many attempts of one sort may write to the log.
const mostFloodLines = 100

// holes are attacks that take more than one step.
func holes() []Case {
	return []Case{
		{Name: "complaint", Tries: "a link to a file of the host as the runner's log, and a secret that is wrong, then restart and hibernate", play: complaint},
		{Name: "fence-from-the-future", Tries: "a fence of epoch 2^63-1", play: fromTheFuture},
		{Name: "socket-link-in-time", Tries: "a link to a socket of the host as the runner's, for as long as the server looks whether it is its own", play: inTime},
		{Name: "socket-sniped", Tries: "links in the place of sockets before they are given their mode", play: sniped},
		{Name: "wrong-secrets", Tries: "up to 10,000 connections with a wrong secret", mostLines: mostFloodLines, play: impostorDoes("-do knock -n 10000 -for 25s")},
		{Name: "requests-out", Tries: "up to 10,000 requests for what may not be reached", mostLines: mostFloodLines, play: impostorDoes("-do leave -n 10000 -for 25s")},
		{Name: "processes", Tries: "secrets in the environment and the command line of every process there is", play: processes},
		{Name: "database-password", Tries: "a password in the address of the database, shown", play: password},
	}
}

// impostorDoes has the impostor do one thing, to its end.
func impostorDoes(args string) func(context.Context, *trial) error {
	return func(ctx context.Context, t *trial) error {
		if err := t.arm(ctx); err != nil {
			return err
		}
		within, cancel := context.WithTimeout(ctx, t.of(time.Minute))
		defer cancel()
		// The server may end the command that shuts it out; the impostor goes on.
		d, err := t.run(within, t.session, "setsid "+put+" "+args+" >/tmp/said 2>&1 & wait $!; cat /tmp/said")
		for err != nil || !strings.Contains(d.Output, "sent") && !strings.Contains(d.Output, "cannot") && !strings.Contains(d.Output, "asked") {
			if t.life.Gone() || sleep.For(within, 200*time.Millisecond) != nil {
				t.note("it did not say what it did: %+v, %v", d, err)
				return nil
			}
			d, err = t.run(within, t.session, "cat /tmp/said")
		}
		t.note("%s", oneLine(d.Output))
		return nil
	}
}

// complaint has the server read what its runner wrote down.
func complaint(ctx context.Context, t *trial) error {
	within, cancel := context.WithTimeout(ctx, t.of(20*time.Second))
	defer cancel()
	d, err := t.run(within, t.session, fmt.Sprintf(
		`arg() { tr '\0' '\n' </proc/1/cmdline | sed -n "/^-$1\$/{n;p}"; }; ln -sfn %s "$(arg log)"; echo wrong >"$(arg secret)"; ls -l "$(arg log)" "$(arg secret)" 2>&1`, quote(t.bait.file)))
	t.note("%s", oneLine(d.Output))
	if err != nil {
		t.note("%v", err)
	}
	// The next server attaches, does not let the runner in, and gives it up after a while.
	t.restart(true)
	if t.died != "" {
		return nil
	}
	patient, enough := context.WithTimeout(ctx, t.of(40*time.Second))
	defer enough()
	if err := t.hibernate(patient); err != nil {
		t.note("hibernate: %v", err)
	}
	return nil
}

// settles checks that the session works again: it is idle, a snapshot of it can be taken,
// and it runs a command.
func (t *trial) settles(ctx context.Context) {
	within, cancel := context.WithTimeout(ctx, t.of(30*time.Second))
	defer cancel()
	if err := t.until(within, t.session, rig.Shown.Settled); err != nil {
		t.unsettled = err.Error()
		return
	}
	var last error
	for {
		d, err := t.run(within, t.session, "echo again")
		if err == nil && d.Output == "again\n" {
			break
		}
		last = errors.Join(err, errors.New(d.Error))
		if t.life.Gone() || sleep.For(within, 200*time.Millisecond) != nil {
			t.unsettled = fmt.Sprintf("it runs no command: %v", last)
			return
		}
	}
	for {
		err := t.ask(within, http.MethodPost, t.session.path("/snapshots"), map[string]any{}, nil)
		if err == nil {
			return
		}
		if t.life.Gone() || sleep.For(within, 200*time.Millisecond) != nil {
			t.unsettled = fmt.Sprintf("no snapshot of it can be taken: %v", err)
			return
		}
	}
}

// fromTheFuture forges what the runner has met.
func fromTheFuture(ctx context.Context, t *trial) error {
	if err := t.arm(ctx); err != nil {
		return err
	}
	shown, err := t.show(ctx, t.session)
	if err != nil {
		return err
	}
	within, cancel := context.WithTimeout(ctx, t.of(20*time.Second))
	defer cancel()
	d, err := t.run(within, t.session, fmt.Sprintf("%s -do forge -session %s -generation %d 2>&1",
		put, t.session.id, max(shown.Sandbox.Generation, 1)))
	if err != nil {
		return err
	}
	t.note("%s", oneLine(d.Output))
	t.meet(ctx, snapshot, "")
	t.meet(ctx, turnEnd, "")
	t.settles(ctx)
	return nil
}

// inTime puts a link in the place of the socket for a few heartbeats of the link.
func inTime(ctx context.Context, t *trial) error {
	within, cancel := context.WithTimeout(ctx, t.of(20*time.Second))
	defer cancel()
	d, err := t.run(within, t.session, fmt.Sprintf("cd /.dormouse/run; for f in socket outlet bell; do ln -sfn %s $f; done; ls -l; sleep 3", quote(t.bait.socket)))
	t.note("%s", oneLine(d.Output))
	if err != nil {
		t.note("%v", err)
	}
	t.everything(ctx)
	return nil
}

func sniped(ctx context.Context, t *trial) error {
	if err := t.arm(ctx); err != nil {
		return err
	}
	within, cancel := context.WithTimeout(ctx, t.of(20*time.Second))
	defer cancel()
	d, err := t.run(within, t.session, fmt.Sprintf("setsid %s -do snipe -for 10s %s >/tmp/said 2>&1 & wait $!; cat /tmp/said", put, quote(t.bait.file)))
	t.note("%s", oneLine(d.Output))
	if err != nil {
		t.note("%v", err)
	}
	t.meet(ctx, restart, "")
	t.meet(ctx, wake, "")
	return nil
}

// processes looks at every process below the server while it does everything it does.
func processes(ctx context.Context, t *trial) error {
	stop, ended := make(chan struct{}), make(chan struct{})
	seen := make(map[string]bool)
	found := make(map[string]bool)
	forks := make(map[int]time.Time) // since when they are known
	go func() {
		defer close(ended)
		for {
			for _, p := range descendants(t.life.PID(), t.server.Mark()) {
				if p.fork {
					if at, known := forks[p.pid]; !known {
						forks[p.pid] = time.Now()
					} else if time.Since(at) > t.of(time.Second) {
						found["a copy of the server goes on"] = true
					}
					continue
				}
				seen[p.name] = true
				for _, what := range t.find.in(p.text) {
					found["the process "+p.name+": "+what] = true
				}
			}
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	}()
	d, err := t.run(ctx, t.session, "sleep 100 & env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline | tr '\\0' '\\n' | sort -u | tail -5")
	t.note("%s", oneLine(d.Output))
	for _, o := range []occasion{turnEnd, attach, snapshot, branch, wake} {
		t.meet(ctx, o, "/workspace")
	}
	close(stop)
	<-ended
	for what := range found {
		t.leaks = append(t.leaks, what)
	}
	t.note("looked at %d programs", len(seen))
	if len(seen) < 2 {
		return fmt.Errorf("no process but %v was seen", seen)
	}
	return err
}

// password starts a server beside whose database is not there.
func password(ctx context.Context, t *trial) error {
	secret := newCanary("the password of the database")
	dir := filepath.Join(t.dir, "elsewhere")
	find := newFinder(secret)
	ctx, cancel := context.WithTimeout(ctx, t.of(5*time.Second))
	defer cancel()
	cmd := exec.CommandContext(ctx, t.server.Server, "serve", "--data", dir, "--listen", "127.0.0.1:0", "--sandbox", "local")
	cmd.Env = append(os.Environ(), "DORMOUSE_STORE=postgres://someone:"+secret.text+"@127.0.0.1:1/none?connect_timeout=2")
	said, err := cmd.CombinedOutput()
	t.note("%s %v", oneLine(string(said)), err)
	for _, what := range find.in(said) {
		t.leaks = append(t.leaks, "what a server says that does not reach its database: "+what)
	}
	if err == nil {
		return errors.New("a server started without its database")
	}
	return os.RemoveAll(dir)
}
