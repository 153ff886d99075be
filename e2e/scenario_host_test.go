package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/dormouse-run/dormouse/e2e/harness/rig"
)

// A password that was given on the command line nevertheless is gone from the
// process list once the server listens.
func TestAPasswordOnTheCommandLineIsBlanked(t *testing.T) {
	t.Parallel()
	const secret = "swordfish-on-the-line"
	w := newWorld(t, func(s *rig.Server) {
		s.Flags = append(s.Flags, "--anthropic-url", "http://dormouse:"+secret+"@127.0.0.1:1", "--log-format=json")
	})
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", w.live().PID()))
	must(t, err)
	if bytes.Contains(line, []byte(secret)) || !bytes.Contains(line, []byte("--anthropic-url\x00xxx")) || !bytes.Contains(line, []byte("\x00--log-format=json\x00")) {
		t.Errorf("the process list has %q", line)
	}
	log, err := os.ReadFile(w.Log)
	must(t, err)
	if bytes.Contains(log, []byte(secret)) || !bytes.Contains(log, []byte(`"flag":"--anthropic-url"`)) {
		t.Errorf("the log has %s", log)
	}
}

// What the server has in its environment is passed to no process it starts.
func TestNoProcessIsGivenTheEnvironmentOfTheServer(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"local", rig.GVisor} {
		t.Run(kind, func(t *testing.T) {
			if kind == rig.GVisor && os.Getuid() != 0 {
				t.Skip("gVisor sandboxes need root")
			}
			t.Parallel()
			canary := "canary-of-" + kind + "-in-the-environment"
			w := newWorld(t, func(s *rig.Server) {
				s.Sandbox = kind
				for _, name := range []string{"ANTHROPIC_API_KEY", "AWS_SECRET_ACCESS_KEY", "PGPASSWORD", "SOMETHING_ELSE"} {
					s.Env = append(s.Env, name+"="+canary)
				}
				s.Env = append(s.Env, "HTTPS_PROXY=http://dormouse:"+canary+"@127.0.0.1:1")
			})
			id := strings.TrimSpace(w.cli("session", "create"))
			command := "env"
			if kind == rig.GVisor { // the other kind isolates nothing
				command += "; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'"
			}
			if got := w.cli("exec", id, command); strings.Contains(got, canary) {
				t.Errorf("a command sees %s", got)
			}
			server := w.live().PID()
			look := func() {
				t.Helper()
				started, held := 0, 0
				for pid, shown := range processes(t) {
					switch {
					case pid == server:
						continue
					case bytes.Contains(shown, []byte(canary)):
						t.Errorf("process %d has it: %.2000q", pid, shown)
					}
					if mine := bytes.Contains(shown, []byte(w.Data)); mine {
						started++
					}
					if line, env, _ := bytes.Cut(shown, []byte("\n")); bytes.HasPrefix(line, []byte("runsc-")) && bytes.Contains(line, []byte(w.Data)) {
						held++
						if len(env) > 0 {
							t.Errorf("process %d of a sandbox begins with %q", pid, env)
						}
					}
				}
				if started == 0 || kind == rig.GVisor && held < 2 {
					t.Errorf("%d processes were looked at, %d of them kernels and file servers", started, held)
				}
			}
			look()
			w.cli("session", "hibernate", id)
			w.cli("exec", id, "true")
			look()
			w.cli("session", "delete", id, "--yes")
		})
	}
}

// processes are the command line and the environment of each process, a line each.
func processes(t *testing.T) map[int][]byte {
	t.Helper()
	found, err := filepath.Glob("/proc/[0-9]*")
	must(t, err)
	all := make(map[int][]byte)
	for _, dir := range found {
		var pid int
		_, err := fmt.Sscan(filepath.Base(dir), &pid)
		must(t, err)
		line, err1 := os.ReadFile(filepath.Join(dir, "cmdline"))
		env, err2 := os.ReadFile(filepath.Join(dir, "environ"))
		if err1 == nil && err2 == nil { // others are gone by now
			all[pid] = append(append(line, '\n'), env...)
		}
	}
	return all
}

// Clients that only hold connections keep no other client out, and cost no more
// than the limit allows.
func TestAServerAnswersWhileStrangersHoldConnections(t *testing.T) {
	t.Parallel()
	const most, held = 500, 3000
	w := newWorld(t, func(s *rig.Server) { s.Flags = append(s.Flags, "--max-connections", strconv.Itoa(most)) })
	id := strings.TrimSpace(w.cli("session", "create"))
	stream, err := http.NewRequestWithContext(w.ctx, http.MethodGet, "http://"+w.live().Addr()+"/api/sessions/"+id+"/events", nil)
	must(t, err)
	stream.Header.Set("Authorization", "Bearer "+w.Token())
	stream.Header.Set("Accept", "text/event-stream")
	res, err := http.DefaultClient.Do(stream)
	must(t, err)
	t.Cleanup(func() { _ = res.Body.Close() })
	ended := make(chan string, 1)
	go func() {
		b, err := io.ReadAll(res.Body)
		ended <- fmt.Sprint(string(b), err)
	}()
	pid := w.live().PID()
	before := resident(t, pid)
	for i := range held {
		c, err := net.Dial("tcp", w.live().Addr())
		must(t, err)
		t.Cleanup(func() { _ = c.Close() })
		if i%3 == 0 {
			_, _ = io.WriteString(c, "GET /healthz HTTP/1.1\r\nHo")
		}
		if i%500 == 0 {
			w.cli("session", "show", id)
		}
	}
	w.cli("session", "show", id)
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	must(t, err)
	if len(open) > most+200 {
		t.Errorf("it has %d files open", len(open))
	}
	if grown := resident(t, pid) - before; grown > 64<<20 {
		t.Errorf("it has grown by %d MiB", grown>>20)
	}
	select {
	case got := <-ended:
		t.Errorf("a stream was cut after %s", got)
	default:
		w.cli("session", "delete", id, "--yes")
		if got := <-ended; !strings.Contains(got, "session.deleted") || !strings.HasSuffix(got, "<nil>") {
			t.Errorf("the stream ended with %s", got)
		}
	}
}

// resident is the memory that a process has.
func resident(t *testing.T, pid int) int {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	must(t, err)
	var size, pages int
	_, err = fmt.Sscan(string(raw), &size, &pages)
	must(t, err)
	return pages * os.Getpagesize()
}
