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

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
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

// upstream serves a repository at an address that only a policy which names it
// allows.
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

// fetch is the page that a reader sees at a URL.
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

// An agent finds, reads and changes files with tools made for that, and its shell
// is what it makes of it.
func TestFileToolsWorkInside(t *testing.T) {
	t.Parallel()
	kinds := []string{"local"}
	if os.Getuid() == 0 {
		kinds = append(kinds, rig.GVisor)
	}
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(s *rig.Server) { s.Sandbox = kind })
			a := w.createUnseen(nil)
			type input = map[string]any
			steps := []struct {
				tool  string
				input input
				says  string
			}{
				{"bash", input{"command": "mkdir -p src/.git && cd src && printf 'a\\r\\nb\\r\\n' >crlf && touch .git/x.go && said=this"}, "(no output)"},
				{"write", input{"file_path": "src/main.go", "content": "package main\n\nfunc main() {}\n"}, "wrote 29 bytes"},
				{"glob", input{"pattern": "**/*.go"}, "src/main.go\n"},
				{"grep", input{"pattern": `func \w+\(`, "path": "src"}, "src/main.go:3:func main() {}\n"},
				{"edit", input{"file_path": "src/main.go", "old_string": "main", "new_string": "other"}, "src/main.go: the text to replace occurs 2 times"},
				{"edit", input{"file_path": "src/main.go", "old_string": "main", "new_string": "other", "replace_all": true}, "replaced it in 2 places"},
				{"edit", input{"file_path": "src/crlf", "old_string": "a\nb", "new_string": "a\nc"}, "replaced it in one place"},
				{"read", input{"file_path": "src/main.go", "view_range": []int{2, -1}}, "     2\t\n     3\tfunc other() {}\n"},
				{"read", input{"file_path": "src"}, ".git/\ncrlf\nmain.go\n"},
				{"grep", input{"pattern": "(", "path": "src"}, "pattern"},
				{"bash", input{"command": `od -An -c crlf | tr -d ' \n'; echo $said`}, `a\r\nc\r\n` + "this\n"},
				{"bash", input{"restart": true}, "[this is a new shell]\n"},
				{"bash", input{"command": `echo "<$said>"`}, "<>\n"},
				{"bash", input{"command": "seq 1 30000"}, "1\n2\n"},
			}
			var script []rig.Step
			for _, s := range steps {
				script = append(script, rig.Use(s.tool, s.input))
			}
			a.send("one", a.script(append(script, rig.Say("done"))...))
			a.rests()
			results := only(a.log(), dormouse.AgentToolResult)
			if len(results) != len(steps) {
				t.Fatalf("%d results, want %d", len(results), len(steps))
			}
			for i, s := range steps {
				if got := words(results[i]); !strings.HasPrefix(got, s.says) {
					t.Errorf("%s %v says %q, want %q", s.tool, s.input, got, s.says)
				}
			}
			long := words(results[len(results)-1])
			_, file, _ := strings.Cut(long, "all of it is in ")
			file, _, _ = strings.Cut(file, " ")
			a.send("two", a.script(rig.Bash("tail -n 1 "+file+"; wc -l <"+file), rig.Use("read", input{"file_path": file, "view_range": []int{15000, 15000}})))
			a.rests()
			results = only(a.log(), dormouse.AgentToolResult)[len(steps):]
			if got := words(results[0]) + words(results[1]); got != "30000\n30000\n 15000\t15000\n" || len(long) > 25_000 {
				t.Errorf("what was long is %d bytes, and %s holds %q", len(long), file, got)
			}
		})
	}
}
