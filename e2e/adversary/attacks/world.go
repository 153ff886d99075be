package attacks

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/internal/sleep"
)

// The limits of the sandboxes that are attacked.
const (
	memory = 512 << 20
	disk   = 256 << 20
	inodes = 8192
	pids   = 128
	files  = 256
)

// World is a server, two sessions of it, and things of its machine that no
// sandbox may reach.
type World struct {
	Dir string
	// Secret is in the file Flag, and is what the listeners at TCP and Unix say.
	Secret, Flag, TCP, Unix string
	// Me is the session that is attacked from, Neighbour one that is not to notice.
	Me, Neighbour *Session

	disk   uint64 // the file system that the directory is on
	server *rig.Server
	keeper *rig.Keeper
	models *rig.Models
	client *rig.Client
	close  []func()
}

// Open starts a server on a directory of its own.
func Open(ctx context.Context, binary string) (_ *World, err error) {
	w := &World{Secret: "flag-" + rand.Text()}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.Close())
		}
	}()
	if w.Dir, err = os.MkdirTemp("", "dormouse-attacks-"); err != nil {
		return nil, err
	}
	if w.disk, err = device(w.Dir); err != nil {
		return nil, err
	}
	w.Flag, w.Unix = filepath.Join(w.Dir, "flag"), filepath.Join(w.Dir, "listener")
	if err := os.WriteFile(w.Flag, []byte(w.Secret+"\n"), 0o644); err != nil {
		return nil, err
	}
	if err := w.listen(); err != nil {
		return nil, err
	}
	if w.models, err = rig.NewModels(); err != nil {
		return nil, err
	}
	bin, err := rig.Beside(binary)
	if err != nil {
		return nil, err
	}
	w.server = &rig.Server{
		Binary: bin, Data: filepath.Join(w.Dir, "data"), Sandbox: "gvisor", Model: w.models.URL(), Log: filepath.Join(w.Dir, "log"),
		Flags: []string{
			"--sandbox-memory", strconv.Itoa(memory), "--sandbox-disk", strconv.Itoa(disk), "--sandbox-inodes", strconv.Itoa(inodes),
			"--sandbox-pids", strconv.Itoa(pids), "--sandbox-files", strconv.Itoa(files), "--sandbox-cpus", "1", "--sleep-after", "0",
		},
	}
	w.keeper = rig.Keep(ctx, w.server, nil)
	w.keeper.Run()
	w.client = w.keeper.Client()
	w.Neighbour, err = w.session(ctx, "neighbour")
	return w, err
}

// listen opens what must not be reached.
func (w *World) listen() error {
	for network, addr := range map[string]string{"tcp": "127.0.0.1:0", "unix": w.Unix} {
		l, err := net.Listen(network, addr)
		if err != nil {
			return err
		}
		w.close = append(w.close, func() { _ = l.Close() })
		if network == "tcp" {
			w.TCP = l.Addr().String()
		}
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = fmt.Fprintln(c, w.Secret)
				_ = c.Close()
			}
		}()
	}
	return nil
}

// Close removes everything.
func (w *World) Close() error {
	var err error
	if w.Neighbour != nil {
		w.Neighbour.remove(context.Background())
	}
	if w.client != nil {
		w.client.Close()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		err = w.keeper.Halt(ctx)
		w.keeper.Close()
	}
	if w.models != nil {
		w.models.Close()
	}
	for _, f := range w.close {
		f()
	}
	return errors.Join(err, os.RemoveAll(w.Dir))
}

// Log is the end of what the server said.
func (w *World) Log() string { return w.server.Tail() }

func (w *World) begin(ctx context.Context, name string) (err error) {
	w.Me, err = w.session(ctx, name)
	return err
}

func (w *World) end(ctx context.Context) { w.Me.remove(ctx) }

// RSS is the memory that the server holds. From now on Peak counts anew.
func (w *World) RSS(ctx context.Context) (int64, error) {
	life, err := w.keeper.Live(ctx)
	if err != nil {
		return 0, err
	}
	const forgetPeak = "5"
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", life.PID()), []byte(forgetPeak), 0); err != nil {
		return 0, err
	}
	return w.memory(ctx, "VmRSS:")
}

// Peak is the most memory that the server has held since RSS was asked for.
func (w *World) Peak(ctx context.Context) (int64, error) { return w.memory(ctx, "VmHWM:") }

func (w *World) memory(ctx context.Context, kind string) (int64, error) {
	life, err := w.keeper.Live(ctx)
	if err != nil {
		return 0, err
	}
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", life.PID()))
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	in := bufio.NewScanner(f)
	for in.Scan() {
		if size, ok := strings.CutPrefix(in.Text(), kind); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(size, "kB")), 10, 64)
			return n << 10, err
		}
	}
	return 0, errors.New("the server has no memory")
}

// Stored is the room that everything of the server takes on the disk.
func (w *World) Stored() int64 {
	var sum int64
	_ = filepath.Walk(w.server.Data, func(_ string, info os.FileInfo, err error) error {
		if err == nil { // else it is gone meanwhile
			sum += allocated(info, w.disk)
		}
		return nil
	})
	return sum
}

// settled is what is stored once volumes have their headroom, within their limits.
func (w *World) settled(ctx context.Context) (int64, error) {
	const still = 500 * time.Millisecond // volumes are looked at several times meanwhile
	for before := w.Stored(); ; {
		if err := sleep.For(ctx, still); err != nil {
			return 0, err
		}
		now := w.Stored()
		if now == before {
			return now, nil
		}
		before = now
	}
}

// Session is a session whose sandbox commands are run in.
type Session struct {
	*rig.Session
}

func (w *World) session(ctx context.Context, name string) (*Session, error) {
	s, err := w.client.Create(ctx, name+"-"+rand.Text(), nil, "")
	if err != nil {
		return nil, err
	}
	return &Session{s}, nil
}

func (s *Session) remove(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	_, _ = s.Once(ctx, http.MethodDelete, s.Path(""), nil, nil) // the whole directory is removed at the end
}

// Done is how a command ended.
type Done struct {
	Exit     int    `json:"exit"`
	Output   string `json:"output"`
	Omitted  int64  `json:"omitted"`
	Error    string `json:"error"`
	TimedOut bool   `json:"timed_out"`
	Unknown  bool   `json:"unknown"`
}

// Do runs a command. If the connection is cut off because so much is printed, it asks
// again for the same command.
func (s *Session) Do(ctx context.Context, command string) (Done, error) {
	ask := map[string]any{"id": rand.Text(), "command": command, "timeout": "240s"}
	for {
		var d Done
		_, err := s.Once(ctx, http.MethodPost, s.Path("/execs"), ask, &d)
		if err == nil {
			return d, nil
		}
		if r := rig.Refused(err); r == nil || r.Code != "behind" || sleep.For(ctx, 200*time.Millisecond) != nil {
			return d, fmt.Errorf("run a command: %w", err)
		}
	}
}

// answersWithin is how long a session may take to be of use again. What was done
// to it may have cost it its sandbox.
const answersWithin = 30 * time.Second

func (s *Session) answers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answersWithin)
	defer cancel()
	for {
		d, err := s.Do(ctx, "echo alive")
		if err == nil && d.Output == "alive\n" {
			return nil
		}
		if sleep.For(ctx, 100*time.Millisecond) != nil {
			return fmt.Errorf("the session no longer answers: %+v, %w", d, err)
		}
	}
}

// oneLine makes one short line of text.
func oneLine(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	const most = 160
	if len(text) > most {
		text = text[:most/2] + " … " + text[len(text)-most/2:]
	}
	return strings.ToValidUTF8(text, "?")
}
