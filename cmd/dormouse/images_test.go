package main

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/packages"
)

func openTestImages(t *testing.T, c config) *images {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	c.Listen = "127.0.0.1:0"
	i, err := openImages(t.TempDir(), c, wayOut(c, func() packages.Sources { return packages.Sources{} }, log), log)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func TestASessionCannotHaveTheHostReadForIt(t *testing.T) {
	i := openTestImages(t, config{})
	for _, ref := range []string{"dir:/", "dir:/etc", "oci:/root", "tarball:/etc/shadow", dormouse.HostImage, "dir:/proc/self/root"} {
		if err := i.allow.Check(ref); err == nil || !strings.Contains(err.Error(), "--image-allow") {
			t.Errorf("%s: %v", ref, err)
		}
	}
	dir := t.TempDir()
	if err := os.Symlink("/etc", filepath.Join(dir, "out")); err != nil {
		t.Fatal(err)
	}
	some := openTestImages(t, config{ImageAllow: []string{"dir:" + dir}})
	for ref, want := range map[string]bool{"dir:" + dir: true, "dir:" + dir + "/out": false, "dir:" + dir + "/../..": false, "dir:/etc": false} {
		if err := some.allow.Check(ref); (err == nil) != want {
			t.Errorf("%s: %v", ref, err)
		}
	}
}

func TestASessionCannotHaveTheServerAskItsOwnNetwork(t *testing.T) {
	asked := 0
	inside := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		w.WriteHeader(http.StatusNotFound)
	}))
	defer inside.Close()
	at := strings.TrimPrefix(inside.URL, "http://")
	if _, err := openTestImages(t, config{}).fetch(t.Context(), at+"/app", ""); err == nil || !strings.Contains(err.Error(), "loopback") || asked > 0 {
		t.Errorf("asked %d times, %v", asked, err)
	}
	// What the operator lists is asked.
	if _, err := openTestImages(t, config{ImageAllow: []string{at + "/"}}).fetch(t.Context(), at+"/app", ""); err == nil || asked == 0 {
		t.Errorf("asked %d times, %v", asked, err)
	}
}

func TestWhatLocalSandboxesCannotDoIsRefused(t *testing.T) {
	o := newOffice(t)
	for _, args := range [][]string{{"--image", "debian"}, {"--network", "off"}, {"--memory", "1G"}, {"--cpus", "1"}} {
		if _, errs, code := o.run(append([]string{"session", "create"}, args...)...); code == 0 || !strings.Contains(errs, "all alike") {
			t.Errorf("%v: %d, %s", args, code, errs)
		}
	}
	for _, args := range [][]string{{"--memory", "much"}, {"--disk", "-1G"}} {
		if _, errs, code := o.run(append([]string{"session", "create"}, args...)...); code == 0 || !strings.Contains(errs, "no size") {
			t.Errorf("%v: %d, %s", args, code, errs)
		}
	}
}

func TestFlagsOfImagesAndIdlenessAreChecked(t *testing.T) {
	good := func() config {
		c := config{Data: "x", Listen: "127.0.0.1:0", Lease: 3e9, ModelTimeout: 1, DropAfter: 1, LogFormat: "text", LogLevel: "info", Snapshots: "turn"}
		c.Limits.memory, c.Limits.disk = "1G", "1G"
		return c
	}
	if c := good(); c.check() != nil {
		t.Fatal(c.check())
	}
	for says, spoil := range map[string]func(*config){
		"--image-allow":  func(c *config) { c.ImageAllow = []string{"dir:relative"} },
		"--idle-timeout": func(c *config) { c.IdleTimeout = -1 },
		"--snapshots is": func(c *config) { c.Snapshots = "hourly" },
		"--snapshots-ke": func(c *config) { c.KeepCount = -1 },
		"limits.cpus":    func(c *config) { c.Limits.parsed.CPUs = 0.01 },
		"limits.files":   func(c *config) { c.Limits.parsed.Files = 3 },
	} {
		c := good()
		spoil(&c)
		if err := c.check(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
}
