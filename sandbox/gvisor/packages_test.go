//go:build linux

package gvisor_test

import (
	"archive/zip"
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/egress"
	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/sandbox/gvisor"
	"github.com/dormouse-run/dormouse/sandbox/sandboxtest"
)

// shop is an index of Python packages with one package, and counts its clients.
type shop struct {
	addr    string
	fetched atomic.Int64
	opened  chan struct{} // if not nil, a package is handed out once it is closed
	asked   chan struct{} // holds one: a client asked for the package
}

func openShop(t *testing.T) *shop {
	t.Helper()
	s := &shop{asked: make(chan struct{}, 1)}
	l, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	s.addr = l.Addr().String()
	const file = "dormouse_greets-1.0-py3-none-any.whl"
	wheel := makeWheel(t)
	mux := http.NewServeMux()
	mux.HandleFunc("/simple/dormouse-greets/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<html><body><a href="/%s">%s</a></body></html>`, file, file)
	})
	mux.HandleFunc("/"+file, func(w http.ResponseWriter, r *http.Request) {
		select {
		case s.asked <- struct{}{}:
		default:
		}
		if s.opened != nil {
			select {
			case <-s.opened:
			case <-r.Context().Done():
				return
			}
		}
		s.fetched.Add(1)
		_, _ = w.Write(wheel)
	})
	server := &http.Server{Handler: mux}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	return s
}

// makeWheel makes a package that has a module and a program.
func makeWheel(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	const info = "dormouse_greets-1.0.dist-info/"
	for _, f := range [][2]string{
		{"dormouse_greets.py", "def main():\n    print('hello from a package')\n"},
		{info + "METADATA", "Metadata-Version: 2.1\nName: dormouse-greets\nVersion: 1.0\n"},
		{info + "WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
		{info + "entry_points.txt", "[console_scripts]\ndormouse-greets = dormouse_greets:main\n"},
		{info + "RECORD", "dormouse_greets.py,,\n" + info + "METADATA,,\n" + info + "WHEEL,,\n" + info + "entry_points.txt,,\n" + info + "RECORD,,\n"},
	} {
		w, err := z.Create(f[0])
		if err == nil {
			_, err = w.Write([]byte(f[1]))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// options are those of a driver whose packages come from the shop.
func (s *shop) options(t *testing.T) gvisor.Options {
	t.Helper()
	if exec.CommandContext(t.Context(), "/usr/bin/python3", "-m", "pip", "--version").Run() != nil {
		t.Skip("there is no pip for sandboxes on this machine")
	}
	allow, err := egress.ParseAllow([]string{s.addr})
	if err != nil {
		t.Fatal(err)
	}
	host, err := dormouse.ParseHost(s.addr)
	if err != nil {
		t.Fatal(err)
	}
	way := egress.New(egress.Options{Allow: allow, PackageHosts: func() []dormouse.Host { return []dormouse.Host{host} }})
	return gvisor.Options{
		PackageEnv: func() []string { return []string{"PIP_INDEX_URL=http://" + s.addr + "/simple"} },
		ServeEgress: func(ctx context.Context, from gvisor.EgressPolicy, l net.Listener) error {
			if from.Network != dormouse.NetworkLimited || len(from.Hosts) > 0 && !from.PackageManagers {
				t.Errorf("it may go %+v", from)
			}
			return way.Serve(ctx, l, egress.Session{ID: from.Session, Policy: egress.Policy{Network: egress.Limited, Packages: from.PackageManagers}})
		},
	}
}

// withPackages is an environment with packages.
func (h *fixture) withPackages(p dormouse.Packages) dormouse.Environment {
	h.t.Helper()
	return h.resolved(dormouse.Environment{Network: dormouse.NetworkLimited, PackageManagers: true, Packages: p})
}

// createWith makes a sandbox, which may take its time.
func (h *fixture) createWith(f runner.Fence, e dormouse.Environment) (sandbox.Sandbox, string) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), 5*time.Minute)
	defer cancel()
	s, err := h.Create(ctx, sandbox.Spec{Fence: f, Environment: e})
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = s.Close() })
	return s, s.(sandbox.PackageReporter).MissingPackages()
}

const greet = "dormouse-greets && python3 -c 'import dormouse_greets'"

func TestPackagesAreInstalledOnceForAllWhoNameThem(t *testing.T) {
	shop := openShop(t)
	h := newHouseOf(t, shop.options(t))
	e := h.withPackages(dormouse.Packages{Pip: []string{"dormouse-greets"}})
	first, missing := h.createWith(fence(1, 1), e)
	if got := h.sh(first, greet); got != "hello from a package" || missing != "" {
		t.Fatalf("%q, missing %q", got, missing)
	}
	if got := string(h.try(first, "touch /usr/mine").Output); !strings.Contains(got, "Read-only") {
		t.Errorf("what others have too can be changed: %s", got)
	}
	if got, want := h.sh(first, "stat -c %a / /etc /etc/passwd /usr /usr/local /var/lib"), "755\n755\n644\n755\n755\n755"; got != want {
		t.Errorf("its modes are %q, want %q", got, want)
	}
	h.sh(first, "echo own >/etc/own")
	other, missing := h.createWith(runner.Fence{Session: "sesn_other", Generation: 1, Epoch: 1}, e)
	if got := h.sh(other, greet+"; ls /etc/own 2>/dev/null; true"); got != "hello from a package" || missing != "" {
		t.Errorf("%q, missing %q", got, missing)
	}
	without := h.createIn(runner.Fence{Session: "sesn_without", Generation: 1, Epoch: 1}, h.withPackages(dormouse.Packages{}), "")
	if got := h.sh(without, "{ "+greet+"; } 2>/dev/null || echo none"); got != "none" {
		t.Errorf("a session that names none has %q", got)
	}
	// They are there after it slept, and after it was lost.
	h.counting(first)
	h.freeze(first, fence(1, 1))
	woken, _ := h.createWith(fence(2, 2), e)
	if p := woken.(sandbox.Restored).Processes(); !p.Kept {
		t.Errorf("processes: %+v", p)
	}
	if got := h.sh(woken, greet); got != "hello from a package" {
		t.Errorf("woken it has %q", got)
	}
	if err := h.Stop(within(t), woken.Handle(), sandboxtest.Newest(woken.Handle())); err != nil {
		t.Fatal(err)
	}
	again, missing := h.createWith(fence(3, 3), e)
	if got := h.sh(again, greet); got != "hello from a package" || missing != "" {
		t.Errorf("made anew it has %q, missing %q", got, missing)
	}
	if n := shop.fetched.Load(); n != 1 {
		t.Errorf("it was fetched %d times", n)
	}
}

func TestWhatCannotBeInstalledIsMissingAndNamed(t *testing.T) {
	shop := openShop(t)
	h := newHouseOf(t, shop.options(t))
	e := h.withPackages(dormouse.Packages{Cargo: []string{"no-such-program"}, Pip: []string{"dormouse-greets"}})
	s, missing := h.createWith(fence(1, 1), e)
	if !strings.Contains(missing, "cargo could not install no-such-program: ") {
		t.Errorf("missing is %q", missing)
	}
	if got := h.sh(s, greet); got != "hello from a package" {
		t.Errorf("beside it there is %q", got)
	}
	// A later sandbox tries anew, and is not given what is incomplete.
	_, missing = h.createWith(runner.Fence{Session: "sesn_other", Generation: 1, Epoch: 1}, e)
	if n := shop.fetched.Load(); n != 2 || missing == "" {
		t.Errorf("it was fetched %d times, missing %q", n, missing)
	}
}

func TestPackagesThatWereBegunAreNotBelieved(t *testing.T) {
	shop := openShop(t)
	shop.opened = make(chan struct{})
	h := newHouseOf(t, shop.options(t))
	e := h.withPackages(dormouse.Packages{Pip: []string{"dormouse-greets"}})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := h.Create(ctx, sandbox.Spec{Fence: fence(1, 1), Environment: e})
		ended <- err
	}()
	select {
	case <-shop.asked:
	case err := <-ended:
		t.Fatalf("it ended: %v", err)
	}
	cancel() // in the middle of it
	if err := <-ended; err == nil {
		t.Error("a sandbox was made without its packages")
	}
	// And one whose server could not clear up.
	left, err := filepath.Glob(filepath.Join(h.dir, "packages", "*"))
	if err != nil || len(left) != 1 {
		t.Fatalf("%v, %v", left, err)
	}
	torn := filepath.Join(left[0], "torn")
	if err := os.MkdirAll(filepath.Join(torn, "volume", "over", "0", "upper"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(left[0], "current"), []byte("torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	close(shop.opened)
	s, missing := h.createWith(fence(1, 2), e)
	if got := h.sh(s, greet); got != "hello from a package" || missing != "" {
		t.Errorf("%q, missing %q", got, missing)
	}
	if _, err := os.Stat(torn); err == nil {
		t.Error("what was begun is still there")
	}
}

func TestPackagesThatNobodyHasAreRemoved(t *testing.T) {
	shop := openShop(t)
	h := newHouseOf(t, shop.options(t))
	e := h.withPackages(dormouse.Packages{Pip: []string{"dormouse-greets"}})
	h.createWith(fence(1, 1), e)
	notes := func() []string {
		found, err := filepath.Glob(filepath.Join(h.dir, "packages", "*", "*", "stock.json"))
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	old := func() {
		for _, note := range notes() {
			if err := os.Chtimes(note, time.Now(), time.Now().Add(-48*time.Hour)); err != nil {
				t.Fatal(err)
			}
		}
		if err := h.CollectPackages(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if old(); len(notes()) != 1 {
		t.Errorf("of what a session has there is %v", notes())
	}
	if err := h.Remove(within(t), runner.Fence{Session: "sesn_test", Generation: 100, Epoch: 100}); err != nil {
		t.Fatal(err)
	}
	if err := h.CollectPackages(t.Context()); err != nil || len(notes()) != 0 {
		t.Errorf("%v, there is %v", err, notes())
	}
}

func TestPackagesLieOverAnImage(t *testing.T) {
	im := smallImage(t, "a")
	const npm = "#!/bin/bash\nread which </which\necho \"$which: $*\" >/which\necho '#!/bin/bash\necho greets' >/bin/greets\n"
	if err := os.WriteFile(filepath.Join(im.Dir, "bin", "npm"), []byte(npm), 0o755); err != nil {
		t.Fatal(err)
	}
	h := newHouseOf(t, gvisor.Options{
		ServeEgress: swallow, Allow: func(string) error { return nil },
		Fetch: func(context.Context, string, string) (gvisor.Image, error) { return im, nil },
	})
	e := h.resolved(dormouse.Environment{Image: "app", Packages: dormouse.Packages{Npm: []string{"x@^1"}, Pip: []string{"y"}}})
	s, missing := h.createWith(fence(1, 1), e)
	const want = "a: install --global --no-audit --no-fund --no-update-notifier -- x@^1\necho greets"
	if got := h.sh(s, "read which </which; echo $which; { read; read line; echo $line; } </bin/greets"); got != want {
		t.Errorf("it has %q", got)
	}
	if !strings.Contains(missing, "pip could not install y: exit 127: there is no python3 in this sandbox") || strings.Contains(missing, "npm") {
		t.Errorf("missing is %q", missing)
	}
	if raw, err := os.ReadFile(filepath.Join(im.Dir, "which")); err != nil || string(raw) != "a\n" {
		t.Errorf("the image became %q, %v", raw, err)
	}
}
