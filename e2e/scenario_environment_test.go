package e2e

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
)

// A session reaches the hosts it names and no other, and its packages come from
// where those of the machine do. Both hold after the server was killed, after it
// slept, and for a branch of it.
func TestASessionHasTheHostsAndPackagesItNames(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("gVisor sandboxes need root")
	}
	if exec.CommandContext(t.Context(), "/usr/bin/python3", "-m", "pip", "--version").Run() != nil {
		t.Skip("there is no pip for sandboxes on this machine")
	}
	t.Parallel()
	named, other, index := greeter(t, "named"), greeter(t, "other"), pipIndex(t)
	w := newWorld(t, func(s *rig.Server) {
		s.Sandbox = rig.GVisor
		s.Flags = append(s.Flags, "--egress-allow", named, "--egress-allow", other, "--egress-allow", index)
		s.Env = append(s.Env, "PIP_INDEX_URL=http://"+index+"/simple")
	})
	id := strings.TrimSpace(w.cli("session", "create", "--allow-host", named, "--package-managers", "--packages", "pip:dormouse-greets"))
	look := func(id, when string) {
		t.Helper()
		if got := w.cli("exec", id, "dormouse-greets"); got != "hello from a package\n" {
			t.Errorf("%s its package says %q", when, got)
		}
		if got := w.cli("exec", id, "curl -sS http://"+named+"/"); got != "named\n" {
			t.Errorf("%s the host that it names says %q", when, got)
		}
		got := w.cli("exec", id, "curl -sS http://"+other+"/")
		if !strings.Contains(got, "the network of this session is limited") || !strings.Contains(got, fmt.Sprintf("has %q among its hosts", other)) {
			t.Errorf("%s another host says %q", when, got)
		}
	}
	look(id, "made,")
	w.kill(nil)
	look(id, "after a crash")
	w.cli("session", "hibernate", id)
	look(id, "woken,")
	look(strings.TrimSpace(w.cli("branch", id)), "as a branch")

	bare := strings.TrimSpace(w.cli("session", "create", "--package-managers", "--packages", "pip:no-such-package"))
	if got := w.cli("exec", bare, "echo goes on"); got != "goes on\n" {
		t.Errorf("without its package it says %q", got)
	}
	var missing string
	for line := range strings.Lines(w.cli("session", "events", bare, "--json")) {
		var e dormouse.Event
		var fact dormouse.SandboxFact
		if json.Unmarshal([]byte(line), &e) == nil && e.Type == dormouse.SandboxStarted && json.Unmarshal(e.Payload, &fact) == nil {
			missing = fact.Missing
		}
	}
	if !strings.Contains(missing, "pip could not install no-such-package") {
		t.Errorf("of what is missing it is told %q", missing)
	}
}

// greeter serves its name at an address that only a policy which names it
// allows.
func greeter(t *testing.T, name string) (addr string) {
	t.Helper()
	return serveAway(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, name) }))
}

func serveAway(t *testing.T, h http.Handler) (addr string) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.2:0")
	must(t, err)
	s := &http.Server{Handler: h}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	return l.Addr().String()
}

// pipIndex serves an index of Python packages which has one.
func pipIndex(t *testing.T) (addr string) {
	t.Helper()
	const file, info = "dormouse_greets-1.0-py3-none-any.whl", "dormouse_greets-1.0.dist-info/"
	var wheel bytes.Buffer
	z := zip.NewWriter(&wheel)
	for _, f := range [][2]string{
		{"dormouse_greets.py", "def main():\n    print('hello from a package')\n"},
		{info + "METADATA", "Metadata-Version: 2.1\nName: dormouse-greets\nVersion: 1.0\n"},
		{info + "WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
		{info + "entry_points.txt", "[console_scripts]\ndormouse-greets = dormouse_greets:main\n"},
		{info + "RECORD", "dormouse_greets.py,,\n" + info + "METADATA,,\n" + info + "WHEEL,,\n" + info + "entry_points.txt,,\n" + info + "RECORD,,\n"},
	} {
		to, err := z.Create(f[0])
		must(t, err)
		_, err = to.Write([]byte(f[1]))
		must(t, err)
	}
	must(t, z.Close())
	mux := http.NewServeMux()
	mux.HandleFunc("/simple/dormouse-greets/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprintf(w, `<html><body><a href="/%s">%s</a></body></html>`, file, file)
	})
	mux.HandleFunc("/"+file, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(wheel.Bytes()) })
	return serveAway(t, mux)
}
