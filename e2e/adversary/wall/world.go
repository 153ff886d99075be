//go:build linux

package wall

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/internal/sleep"
)

// The limits of the sandboxes. They are small: what is attacked is the server.
var limits = []string{
	"--sandbox-memory", "805306368", "--sandbox-disk", "268435456", "--sandbox-inodes", "8192", "--sandbox-pids", "128",
	"--sandbox-files", "256", "--sandbox-cpus", "1", "--sleep-after", "0",
}

// Options say what is attacked, and how patiently.
type Options struct {
	Binary string
	// Impostor is the program that is put into sandboxes; it is built if empty.
	Impostor string
	// Slow multiplies every bound of time, if more than 1.
	Slow float64
	// Sample is how many cases are chosen; all if 0.
	Sample int
}

// world is a server with a session that is not to notice anything.
type world struct {
	bounds
	dir      string
	impostor []byte // a tar
	server   *rig.Server
	life     *rig.Life
	http     *http.Client
	bait     *bait
	given    canary // what is in the server's environment
	find     *finder
	aside    *session // the neighbour
}

// open starts a server on a directory of its own.
func open(ctx context.Context, o Options, models *rig.Models, impostor []byte) (_ *world, err error) {
	w := &world{bounds: bounds{o.Slow}, impostor: impostor, given: newCanary("the server's environment"), http: &http.Client{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	if w.dir, err = os.MkdirTemp("", "dormouse-wall-"); err != nil {
		return nil, err
	}
	if w.bait, err = layBait(filepath.Join(w.dir, "bait")); err != nil {
		return nil, err
	}
	bin, err := rig.Beside(o.Binary)
	if err != nil {
		return nil, err
	}
	w.server = &rig.Server{
		Binary: bin, Data: filepath.Join(w.dir, "data"), Sandbox: rig.GVisor, Model: models.URL(), Log: filepath.Join(w.dir, "log"), Flags: limits,
		Env:     []string{"ANTHROPIC_API_KEY=" + w.given.text, "AWS_SECRET_ACCESS_KEY=" + w.given.text, "DORMOUSE_UNKNOWN_SECRET=" + w.given.text},
		Patient: w.of(startWithin),
	}
	if err := w.start(ctx); err != nil {
		return nil, err
	}
	w.find = newFinder(w.bait.canary, w.given, canary{"the server's token", w.server.Token()})
	if w.aside, err = w.create(ctx, "neighbour"); err != nil {
		return nil, err
	}
	return w, w.warm(ctx)
}

// startWithin bounds how long a server may take to listen.
const startWithin = 15 * time.Second

func (w *world) start(ctx context.Context) (err error) {
	w.life, err = w.server.Start(context.WithoutCancel(ctx), rig.Arm{}, "")
	return err
}

// warm does everything once without an attack, so that one-time allocations are not taken
// for growth.
func (w *world) warm(ctx context.Context) error {
	t := &trial{world: w}
	var err error
	if t.session, err = w.create(ctx, "warm"); err != nil {
		return err
	}
	for _, o := range occasions() {
		if o != restart {
			t.meet(ctx, o, "/workspace/x")
		}
	}
	return errors.Join(w.answers(ctx), t.delete(ctx, t.session))
}

// answers has the neighbour run a command.
func (w *world) answers(ctx context.Context) error {
	const within = 20 * time.Second
	ctx, cancel := context.WithTimeout(ctx, w.of(within))
	defer cancel()
	for {
		d, err := (&trial{world: w}).run(ctx, w.aside, "echo alive")
		if err == nil && d.Output == "alive\n" {
			return nil
		}
		if w.life.Gone() || sleep.For(ctx, 100*time.Millisecond) != nil {
			return fmt.Errorf("%+v, %w", d, err)
		}
	}
}

// stop ends the server, as an operator does or as a crash would.
func (w *world) stop(kill bool) {
	const within = 20 * time.Second
	if !kill {
		w.life.Signal(syscall.SIGTERM)
		select {
		case <-w.life.Done():
			return
		case <-time.After(w.of(within)):
		}
	}
	w.life.Kill()
}

// export has the server's own tool write everything it has. Nothing may serve.
func (w *world) export(ctx context.Context) ([]byte, error) {
	var out, said bytes.Buffer
	cmd := exec.CommandContext(ctx, w.server.Server, "store", "export", "-", "--data", w.server.Data)
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("export: %w: %s", err, said.String())
	}
	return append(out.Bytes(), said.Bytes()...), nil
}

// logged is how much the server has said.
func (w *world) logged() int64 {
	at, err := os.Stat(w.server.Log)
	if err != nil {
		return 0
	}
	return at.Size()
}

// log is what the server said from there on, as far as that can be read.
func (w *world) log(from int64) []byte {
	const most = 32 << 20
	f, err := os.Open(w.server.Log)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	b := make([]byte, most)
	n, _ := f.ReadAt(b, from)
	return b[:n]
}

// close removes everything, however the server is.
func (w *world) close() error {
	var errs []error
	if w.life != nil {
		w.life.Kill()
	}
	if w.server != nil {
		errs = append(errs, w.server.Clear())
	}
	if w.bait != nil {
		errs = append(errs, w.bait.close())
	}
	if w.http != nil {
		w.http.CloseIdleConnections()
	}
	return errors.Join(append(errs, os.RemoveAll(w.dir))...)
}
