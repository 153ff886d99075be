package e2e

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/dormouse-run/dormouse/e2e/rig"
)

// What people do all day works in a sandbox as it is given out: they fetch, they
// build, they serve and look at it from outside.
func TestEverydayToolsWorkInside(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("gVisor sandboxes need root")
	}
	t.Parallel()
	away := upstream(t)
	w := newWorld(t, func(s *rig.Server) {
		s.Sandbox = rig.GVisor
		s.Flags = append(s.Flags, "--egress-allow", away)
	})
	id := strings.TrimSpace(w.cli("session", "create"))
	for _, step := range []struct{ name, command, prints string }{
		{"git clone", `git clone -q http://` + away + `/up.git down && cat down/said`, "hello\n"},
		{"git commit", `cd down && git config user.email ada@example.com && git config user.name Ada && echo more >>said &&
			git commit -qam more && git log --oneline | wc -l`, "2\n"},
		{"go build", `mkdir -p built && cd built && echo 'package main; func main() { print("built inside\n") }' >main.go &&
			go mod init -C . example.com/built 2>/dev/null && go build -o built . && ./built 2>&1`, "built inside\n"},
		{"venv", `python3 -m venv .venv && .venv/bin/python -c 'import sys; print(sys.prefix)'`, "/workspace/.venv\n"},
	} {
		if got := w.cli("exec", id, step.command); got != step.prints {
			t.Errorf("%s printed %q, not %q", step.name, got, step.prints)
		}
	}

	w.cli("exec", id, `cd down && setsid python3 -m http.server 8000 >/dev/null 2>&1 & for i in {1..300}; do
		exec 3<>/dev/tcp/127.0.0.1/8000 && break; sleep 0.1; done 2>/dev/null`)
	if out := w.cli("ports", id); !strings.Contains(out, "8000") {
		t.Errorf("the port is not listed:\n%s", out)
	}
	if got := w.fetch(w.forward(id, "8000") + "/said"); got != "hello\nmore\n" {
		t.Errorf("through the forwarded port came %q", got)
	}
	w.cli("session", "delete", id, "--yes")
}

// upstream serves a repository, where only somebody who was told of it may go.
func upstream(t *testing.T) (addr string) {
	t.Helper()
	dir := t.TempDir()
	script := `git init -q -b main work && cd work && git config user.email ada@example.com && git config user.name Ada &&
		echo hello >said && git add said && git commit -qm one && git clone -q --bare . ../up.git && git -C ../up.git update-server-info`
	cmd := exec.CommandContext(t.Context(), "bash", "-c", script)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make a repository: %v: %s", err, out)
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.2:0")
	must(t, err)
	s := &http.Server{Handler: http.FileServer(http.Dir(dir))}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	return l.Addr().String()
}

// forward opens a port of a sandbox here until the test ends, and says where.
func (w *world) forward(id, port string) (url string) {
	w.t.Helper()
	cmd := exec.CommandContext(w.ctx, built.Server, "forward", id, "0:"+port, "--data", w.Data)
	out, err := cmd.StdoutPipe()
	must(w.t, err)
	must(w.t, cmd.Start())
	w.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	must(w.t, err)
	return "http://" + strings.Fields(line)[0]
}

// fetch is what somebody sees who looks at a page.
func (w *world) fetch(url string) string {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.ctx, http.MethodGet, url, nil)
	must(w.t, err)
	res, err := http.DefaultClient.Do(req)
	must(w.t, err)
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	must(w.t, err)
	return string(b)
}
