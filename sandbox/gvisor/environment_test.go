//go:build linux

package gvisor_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/sandbox/gvisor"
	"github.com/dormouse-run/dormouse/sandbox/sandboxtest"
)

// newHouseOf is a driver of the given kind on a directory of its own.
func newHouseOf(t testing.TB, o gvisor.Options) *fixture {
	t.Helper()
	dir := t.TempDir()
	t.Cleanup(func() { cleared(t, dir) })
	o.Dir, o.Instance, o.Runner, o.Program = dir, instance(dir), runnerPath, kernelPath
	if o.Limits == (dormouse.Limits{}) {
		o.Limits = gvisor.DefaultLimits()
	}
	o.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	d, err := gvisor.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return &fixture{Driver: d, t: t, dir: dir}
}

// resolved is an environment as a session records it.
func (h *fixture) resolved(e dormouse.Environment) dormouse.Environment {
	h.t.Helper()
	e, err := h.ResolveEnvironment(e)
	if err != nil {
		h.t.Fatal(err)
	}
	return e
}

func (h *fixture) createIn(f runner.Fence, e dormouse.Environment, image string) sandbox.Sandbox {
	h.t.Helper()
	s, err := h.Create(within(h.t), sandbox.Spec{Fence: f, Environment: e, Image: image})
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = s.Close() })
	return s
}

// swallow is a way out that leads nowhere.
func swallow(ctx context.Context, _ gvisor.EgressPolicy, l net.Listener) error {
	<-ctx.Done()
	return l.Close()
}

func TestAnEnvironmentIsCompletedOnceAndForAll(t *testing.T) {
	h := newHouseOf(t, gvisor.Options{Limits: dormouse.Limits{CPUs: 2, Memory: 1 << 30}, ServeEgress: swallow})
	got := h.resolved(dormouse.Environment{Limits: dormouse.Limits{Memory: 512 << 20, Pids: 100}})
	want := dormouse.Environment{
		Image: dormouse.HostImage, Network: dormouse.NetworkOn,
		Limits: dormouse.Limits{CPUs: 2, Memory: 512 << 20, Pids: 100, Disk: dormouse.Unlimited, Inodes: dormouse.Unlimited, Files: dormouse.Unlimited},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
	if err := got.Validate(); err != nil {
		t.Error(err)
	}
}

func TestAnEnvironmentThatSessionsMayNotHaveIsRefused(t *testing.T) {
	allow := func(ref string) error {
		if ref == "debian" {
			return nil
		}
		return errors.New("not for you")
	}
	h := newHouseOf(t, gvisor.Options{Limits: dormouse.Limits{CPUs: 2, Memory: 1 << 30, Pids: 64}, Allow: allow})
	for name, c := range map[string]struct {
		ask  dormouse.Environment
		says string
	}{
		"more memory":          {dormouse.Environment{Limits: dormouse.Limits{Memory: 2 << 30}}, "limits.memory is 2147483648; this server gives at most 1073741824"},
		"more processors":      {dormouse.Environment{Limits: dormouse.Limits{CPUs: 2.5}}, "limits.cpus is 2.5; this server gives at most 2"},
		"no limit":             {dormouse.Environment{Limits: dormouse.Limits{Pids: dormouse.Unlimited}}, "limits.pids cannot be -1"},
		"inodes without disk":  {dormouse.Environment{Limits: dormouse.Limits{Inodes: 1024}}, "limits.inodes needs limits.disk"},
		"a network":            {dormouse.Environment{Network: dormouse.NetworkOn}, "network is on; on this server it is off"},
		"a limited network":    {dormouse.Environment{Network: dormouse.NetworkLimited}, "network is limited; on this server it is off"},
		"packages, no network": {dormouse.Environment{Packages: dormouse.Packages{Npm: []string{"x"}}}, "packages need a network"},
		"an image of the host": {dormouse.Environment{Image: "dir:/etc"}, `image "dir:/etc": not for you`},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := h.ResolveEnvironment(c.ask); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v", err)
			}
		})
	}
	h.resolved(dormouse.Environment{Image: "debian", Network: dormouse.NetworkOff, Limits: dormouse.Limits{Memory: 1 << 30, CPUs: 2, Pids: 64}})
}

func TestASessionLivesWithinItsOwnLimits(t *testing.T) {
	h := newHouseOf(t, gvisor.Options{Spares: 1})
	own := h.resolved(dormouse.Environment{Limits: dormouse.Limits{Memory: 256 << 20, Pids: 40, Disk: 96 << 20, Inodes: 2048, Files: 100}})
	s := h.createIn(fence(1, 1), own, "")
	const look = `awk '/MemTotal/ {print $2}' /proc/meminfo; ulimit -n; df -k /workspace | awk 'NR == 2 {print ($2 < 98304)}'; df -i /workspace | awk 'NR == 2 {print ($2 < 4096)}'`
	if got := h.sh(s, look); got != "262144\n100\n1\n1" {
		t.Errorf("it has %q", got)
	}
	if got := h.sh(s, `perl -e 'for (1..60) { $p = fork; if (!defined $p) { print "full"; last } if (!$p) { sleep 60; exit } push @p, $p } kill 9, @p; wait for @p'`); got != "full" {
		t.Errorf("60 processes: %q", got)
	}
	usual := h.createIn(runner.Fence{Session: "sesn_other", Generation: 1, Epoch: 1}, h.resolved(dormouse.Environment{}), "")
	if got := h.sh(usual, look); got != "4194304\n65536\n0\n0" {
		t.Errorf("another session has %q", got)
	}
	// What it was made with holds after the flags have changed, and for its memory.
	h.counting(s)
	h.freeze(s, fence(1, 1))
	h.restart() // with limits of other sizes
	second := h.createIn(fence(2, 2), own, "")
	if woken := second.(sandbox.Restored).Processes(); !woken.Kept {
		t.Errorf("processes: %+v", woken)
	}
	if got := h.sh(second, look); got != "262144\n100\n1\n1" {
		t.Errorf("woken it has %q", got)
	}
}

func TestOnlySessionsThatAreAsUsualTakeASpare(t *testing.T) {
	h := newHouseOf(t, gvisor.Options{Spares: 1, ServeEgress: swallow})
	waiting := h.spare()
	h.createIn(fence(1, 1), h.resolved(dormouse.Environment{Network: dormouse.NetworkOff}), "")
	if got := h.spare(); got != waiting {
		t.Errorf("%s waited, now %s does", waiting, got)
	}
	s := h.createIn(runner.Fence{Session: "sesn_other", Generation: 1, Epoch: 1}, h.resolved(dormouse.Environment{Network: dormouse.NetworkOn}), "")
	if !strings.Contains(string(s.Handle()), waiting) {
		t.Errorf("%s waited, and the session has %s", waiting, s.Handle())
	}
}

func TestASessionWithoutNetworkHasNoWayOut(t *testing.T) {
	h := newHouseOf(t, gvisor.Options{ServeEgress: swallow})
	const look = `env | grep -ci _proxy; (exec 3<>/dev/tcp/127.0.0.1/3128) 2>/dev/null && echo listens`
	off := h.createIn(fence(1, 1), h.resolved(dormouse.Environment{Network: dormouse.NetworkOff}), "")
	if got := string(h.try(off, look).Output); got != "0\n" {
		t.Errorf("without a network there is %q", got)
	}
	if found, err := filepath.Glob(filepath.Join(h.dir, "boxes", "*", "run", "outlet")); err != nil || len(found) > 0 {
		t.Errorf("ways out: %v, %v", found, err)
	}
	on := h.createIn(runner.Fence{Session: "sesn_other", Generation: 1, Epoch: 1}, h.resolved(dormouse.Environment{}), "")
	if got := string(h.try(on, look).Output); !strings.HasSuffix(got, "listens\n") || strings.HasPrefix(got, "0\n") {
		t.Errorf("with a network there is %q", got)
	}
}

// small images: a shell that can say which one it is.
func smallImage(t testing.TB, which string) gvisor.Image {
	t.Helper()
	dir := t.TempDir()
	out, err := exec.Command("ldd", "/bin/bash").Output()
	if err != nil {
		t.Fatal(err)
	}
	files := append(regexp.MustCompile(`/\S+`).FindAllString(string(out), -1), "/bin/bash", "/bin/sleep")
	for _, name := range files {
		to := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := copyFile(name, to); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("bash", filepath.Join(dir, "bin", "sh")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "which"), []byte(which+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return gvisor.Image{Dir: dir, Digest: "sha256:" + which, Env: []string{"OF=" + which}}
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

func TestAnImageIsTheOneOfTheFirstSandboxWhereverItsTagLeads(t *testing.T) {
	images := map[string]gvisor.Image{}
	for _, which := range []string{"a", "b"} {
		im := smallImage(t, which)
		images[im.Digest] = im
	}
	leads, broken := "sha256:a", error(nil)
	h := newHouseOf(t, gvisor.Options{
		Spares: 1, Allow: func(string) error { return nil },
		Fetch: func(_ context.Context, ref, digest string) (gvisor.Image, error) {
			if ref != "app" {
				return gvisor.Image{}, fmt.Errorf("asked for %s", ref)
			}
			if digest == "" {
				digest = leads
			}
			return images[digest], broken
		},
	})
	own := h.resolved(dormouse.Environment{Image: "app"})
	const look = `read which </which; echo $which is $OF; echo >>/workspace/file; [ -e /usr/bin/env ] || echo no more`
	first := h.createIn(fence(1, 1), own, "")
	if got := h.sh(first, look); got != "a is a\nno more" {
		t.Errorf("it has %q", got)
	}
	digest := first.(sandbox.FromImage).ImageDigest()
	if digest != "sha256:a" {
		t.Errorf("made from %q", digest)
	}
	h.call(first, dormouse.OpTask, "sleep 1000")
	leads = "sha256:b"
	h.freeze(first, fence(1, 1))
	second := h.createIn(fence(2, 2), own, digest)
	if woken := second.(sandbox.Restored).Processes(); !woken.Kept {
		t.Errorf("processes: %+v", woken)
	}
	if got := h.sh(second, look); got != "a is a\nno more" || second.(sandbox.FromImage).ImageDigest() != digest {
		t.Errorf("woken it has %q", got)
	}
	if err := h.Stop(within(t), second.Handle(), sandboxtest.Newest(second.Handle())); err != nil {
		t.Fatal(err)
	}
	third := h.createIn(fence(3, 3), own, digest)
	if got := h.sh(third, look); got != "a is a\nno more" {
		t.Errorf("from its files it has %q", got)
	}
	other := h.createIn(runner.Fence{Session: "sesn_other", Generation: 1, Epoch: 1}, own, "")
	if got := h.sh(other, look); got != "b is b\nno more" {
		t.Errorf("a new session has %q", got)
	}

	if used, err := h.Images(); err != nil || !used["sha256:a"] || !used["sha256:b"] {
		t.Errorf("in use are %v, %v", used, err)
	}
	if err := errors.Join(other.Close(), h.Remove(within(t), runner.Fence{Session: "sesn_other", Generation: 100, Epoch: 100})); err != nil {
		t.Fatal(err)
	}
	if used, err := h.Images(); err != nil || !used["sha256:a"] || used["sha256:b"] {
		t.Errorf("in use are %v, %v", used, err)
	}

	// Attaching needs no image, and what cannot be fetched is an error that says so.
	broken = errors.New("the registry is away")
	again, err := h.Create(within(t), sandbox.Spec{Fence: fence(3, 4), Environment: own, Image: digest})
	if err != nil {
		t.Fatalf("a living sandbox is not taken over: %v", err)
	}
	defer func() { _ = again.Close() }()
	if _, err := h.Create(within(t), sandbox.Spec{Fence: runner.Fence{Session: "sesn_third", Generation: 1, Epoch: 1}, Environment: own}); err == nil || !strings.Contains(err.Error(), "the registry is away") {
		t.Errorf("created with %v", err)
	}
}

func TestWhatIsBelowUsrIsFoundInside(t *testing.T) {
	dir, err := os.MkdirTemp("/usr/local", "dormouse-test-") //nolint:usetesting // it must be below /usr
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	program := filepath.Join(dir, "found-inside")
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho found\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	h := newHouseOf(t, gvisor.Options{SearchPath: "/usr/bin:/root/bin:relative:/usr/../etc:/usr/none:" + dir})
	s := h.create(fence(1, 1))
	if got := h.sh(s, "found-inside; echo $PATH; bash -lc 'found-inside; echo $PATH'"); got != strings.Repeat("found\n/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:"+dir+"\n", 2)[:len(got)] || !strings.HasSuffix(got, dir) {
		t.Errorf("inside: %q", got)
	}
}

func TestWhereANetworkLeadsIsKnownToEveryServer(t *testing.T) {
	asked := make(chan gvisor.EgressPolicy, 8)
	o := gvisor.Options{Spares: 1, ServeEgress: func(ctx context.Context, from gvisor.EgressPolicy, l net.Listener) error {
		asked <- from
		return swallow(ctx, from, l)
	}}
	h := newHouseOf(t, o)
	waiting := h.spare()
	own := h.resolved(dormouse.Environment{Network: dormouse.NetworkLimited, Hosts: []string{"example.com", "*.example.org"}, PackageManagers: true})
	first := h.createIn(fence(1, 1), own, "")
	if !strings.Contains(string(first.Handle()), waiting) {
		t.Errorf("%s waited, and the session has %s", waiting, first.Handle())
	}
	h.counting(first)
	want := gvisor.EgressPolicy{Session: "sesn_test", Network: dormouse.NetworkLimited, Hosts: []string{"example.com", "*.example.org"}, PackageManagers: true}
	leads := func(when string) {
		t.Helper()
		select {
		case got := <-asked:
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", when, diff)
			}
		case <-within(t).Done():
			t.Fatalf("%s it leads nowhere", when)
		}
	}
	leads("made")
	// A server that starts again lets it out before any request.
	if err := errors.Join(first.Close(), h.Close()); err != nil {
		t.Fatal(err)
	}
	h.restartAs(gvisor.Options{ServeEgress: o.ServeEgress})
	leads("found again")
	again, err := h.Attach(within(t), first.Handle(), fence(1, 2))
	if err != nil {
		t.Fatal(err)
	}
	h.freeze(again, fence(1, 2))
	woken := h.createIn(fence(2, 3), own, "")
	if p := woken.(sandbox.Restored).Processes(); !p.Kept {
		t.Errorf("processes: %+v", p)
	}
	leads("woken")
	if len(asked) > 0 {
		t.Error("it is let out twice")
	}
}
