//go:build linux

package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
)

// answers has requests about blobs answered by f, and others as ever.
func (c *cloud) answers(method string, f http.HandlerFunc) {
	g := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == method && strings.Contains(r.URL.Path, "/sha256/") {
			f(w, r)
			return
		}
		c.proxy.ServeHTTP(w, r)
	})
	c.answer.Store(&g)
}

// changes has what is read changed on its way.
func (c *cloud) changes(change func(body []byte) []byte) {
	c.answers(http.MethodGet, func(w http.ResponseWriter, r *http.Request) {
		rec := httptest.NewRecorder()
		c.proxy.ServeHTTP(rec, r)
		body := rec.Body.Bytes()
		if rec.Code < http.StatusMultipleChoices {
			body = change(bytes.Clone(body))
		}
		maps.Copy(w.Header(), rec.Header())
		w.Header().Del("Content-Length")
		w.WriteHeader(rec.Code)
		_, _ = w.Write(body)
	})
}

// cloudFault is a way for the store of blobs to fail.
type cloudFault struct {
	name string
	fall func(c *cloud)
	// mends says that a snapshot may be there all the same.
	mends bool
}

var cloudFaults = []cloudFault{
	{name: "down", fall: func(c *cloud) { c.Refuse() }},
	{name: "503", fall: func(c *cloud) { c.refuses(http.StatusServiceUnavailable, "SlowDown") }},
	{name: "a bucket that is gone", fall: func(c *cloud) { c.refuses(http.StatusNotFound, "NoSuchBucket") }},
	{name: "what is put is not stored", fall: func(c *cloud) {
		c.answers(http.MethodPut, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("ETag", `"d41d8cd98f00b204e9800998ecf8427e"`)
		})
	}},
	{name: "it says that it has what is put", fall: func(c *cloud) {
		c.answers(http.MethodPut, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.WriteHeader(http.StatusPreconditionFailed)
			_, _ = io.WriteString(w, "<Error><Code>PreconditionFailed</Code><Message>it is there</Message></Error>")
		})
	}},
	{name: "other bytes are read", fall: func(c *cloud) {
		c.changes(func(b []byte) []byte {
			if len(b) > 0 {
				b[len(b)/2] ^= 1
			}
			return b
		})
	}},
	{name: "half is read", fall: func(c *cloud) { c.changes(func(b []byte) []byte { return b[:len(b)/2] }) }},
	{name: "another tag is returned", mends: true, fall: func(c *cloud) {
		c.answers(http.MethodPut, func(w http.ResponseWriter, r *http.Request) {
			rec := httptest.NewRecorder()
			c.proxy.ServeHTTP(rec, r)
			rec.Header().Set("ETag", `"0123456789abcdef0123456789abcdef"`)
			maps.Copy(w.Header(), rec.Header())
			w.WriteHeader(rec.Code)
			_, _ = w.Write(rec.Body.Bytes())
		})
	}},
}

// lined is a session whose files are taken back and forth.
type lined struct {
	*rig.Session
	w         *world
	execs     int
	snapshots map[dormouse.SnapshotID]string // that were acknowledged, and what was in the file
}

func (l *lined) run(command string) string {
	l.w.t.Helper()
	l.execs++
	result, err := l.Ask(l.w.ctx, rig.Asked{ClientID: fmt.Sprint("exec", l.execs), Command: command})
	must(l.w.t, err)
	if !result.Ran() || result.Exit != 0 {
		l.w.t.Fatalf("%q came to %+v", command, result)
	}
	return result.Output
}

// take asks for a snapshot once, and notes it if it was acknowledged.
func (l *lined) take(what string) error {
	var p listedSnapshot
	_, err := l.Once(l.w.ctx, http.MethodPost, l.Path("/snapshots"), map[string]any{}, &p)
	if err == nil {
		l.snapshots[dormouse.SnapshotID(p.ID)] = what
	}
	return err
}

// has fails unless the file is as it should be.
func (l *lined) has(what, when string) {
	l.w.t.Helper()
	if got := l.run("cat file"); got != what+"\n" {
		l.w.t.Fatalf("%s the file has %q, not %q", when, got, what)
	}
}

// TestB32: a snapshot is acknowledged only if its bytes were read back from the bucket,
// whatever that says; until then nothing is given up for it.
func TestB32SnapshotsAreKeptOrNotTaken(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("layers are made by root")
	}
	t.Parallel()
	for kind := range strings.FieldsSeq(insides) {
		t.Run(kind, func(t *testing.T) {
			w, c := newCloud(t, func(s *rig.Server) {
				s.Sandbox, s.Store = kind, rig.Store{}
				s.Flags = append(s.Flags, "--snapshots", "off", "--sleep-after", "0")
			})
			if kind == rig.GVisor {
				t.Cleanup(func() { must(t, w.Clear()) })
			}
			var all []*lined
			for _, f := range cloudFaults {
				t.Run(f.name, func(t *testing.T) { all = append(all, w.on(t).loses(c, f)) })
			}
			// Nothing is left but what the bucket has.
			w.kill(func() { must(t, forgetLayers(w.Data)) })
			for _, l := range all {
				for id, what := range l.snapshots {
					must(t, l.Repeat(w.ctx, http.MethodPost, l.Path("/restore"), map[string]any{"snapshot": id}, nil))
					l.has(what, "fetched again,")
				}
			}
		})
	}
}

// loses takes snapshots before, while and after the bucket fails.
func (w *world) loses(c *cloud, f cloudFault) *lined {
	w.t.Helper()
	s, err := w.Create(w.ctx, f.name, map[string]any{"warm": true}, "")
	must(w.t, err)
	l := &lined{Session: s, w: w, snapshots: make(map[dormouse.SnapshotID]string)}
	write := func(what string) string {
		what += " of " + f.name // no two layers are alike
		l.run("echo " + what + " >file; seq 5000 >" + strings.ReplaceAll(what, " ", "-"))
		return what
	}
	first := write("first")
	must(w.t, l.take(first))
	second := write("second")
	f.fall(c)
	if err := l.take(second); err == nil && !f.mends {
		w.t.Error("a snapshot was acknowledged that is not stored")
	} else if r := rig.Refused(err); err != nil && (r == nil || r.Message == "") {
		w.t.Errorf("it was not said why: %v", err)
	}
	l.has(second, "with a snapshot that was not taken")
	err = l.Insist(w.ctx, "hibernate", nil, func(s rig.Shown) bool { return s.Sandbox.Phase == "cold" })
	must(w.t, err)
	_, err = l.Until(w.ctx, func(s rig.Shown) bool { return s.Sandbox.Phase == "cold" })
	must(w.t, err)
	l.has(second, "woken while the bucket fails,")
	c.heals(w.t)
	w.until("snapshots are taken again", func() bool { return l.take(second) == nil })
	for id, what := range l.snapshots {
		must(w.t, l.Repeat(w.ctx, http.MethodPost, l.Path("/restore"), map[string]any{"snapshot": id}, nil))
		l.has(what, "gone back")
	}
	return l
}

// TestB32: while a snapshot cannot be fetched the session keeps the files it has.
func TestB32SnapshotsThatCannotBeFetchedCostNothing(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("layers are made by root")
	}
	t.Parallel()
	w, c := newCloud(t, func(s *rig.Server) {
		s.Store, s.Flags = rig.Store{}, append(s.Flags, "--snapshots", "off", "--sleep-after", "0")
	})
	s, err := w.Create(w.ctx, "fetches", map[string]any{"warm": true}, "")
	must(t, err)
	l := &lined{Session: s, w: w, snapshots: make(map[dormouse.SnapshotID]string)}
	l.run("echo first >file")
	must(t, l.take("first"))
	l.run("echo second >file")
	w.kill(func() { must(t, forgetLayers(w.Data)) })
	for _, f := range cloudFaults {
		if f.mends || strings.Contains(f.name, "put") {
			continue
		}
		f.fall(c)
		for id := range l.snapshots {
			for _, verb := range []string{"restore", "branch"} {
				if _, err := l.Once(w.ctx, http.MethodPost, l.Path("/"+verb), map[string]any{"snapshot": id}, nil); rig.Refused(err) == nil {
					t.Errorf("%s: to %s came to %v", f.name, verb, err)
				}
			}
		}
		l.has("second", "with a snapshot that was not fetched,")
		c.heals(t)
	}
	for id, what := range l.snapshots {
		w.until("it is fetched", func() bool {
			_, err := l.Once(w.ctx, http.MethodPost, l.Path("/restore"), map[string]any{"snapshot": id}, nil)
			return err == nil
		})
		l.has(what, "fetched at last,")
	}
}

// TestB32: a bucket that does not answer delays a snapshot, and no more.
func TestB32SnapshotsWaitForASlowBucket(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("layers are made by root")
	}
	t.Parallel()
	w, c := newCloud(t, func(s *rig.Server) {
		s.Store, s.Flags = rig.Store{}, append(s.Flags, "--snapshots", "off", "--sleep-after", "0")
	})
	s, err := w.Create(w.ctx, "waits", map[string]any{"warm": true}, "")
	must(t, err)
	l := &lined{Session: s, w: w, snapshots: make(map[dormouse.SnapshotID]string)}
	l.run("echo first >file")
	c.Hold()
	asked := make(chan error, 1)
	go func() { asked <- l.take("first") }()
	l.has("first", "while a snapshot is being stored")
	select {
	case err := <-asked:
		t.Errorf("a snapshot came to %v while nothing was stored", err)
	case <-time.After(time.Second):
	}
	c.heals(t)
	if err := <-asked; err != nil {
		w.until("snapshots are taken again", func() bool { return l.take("first") == nil })
	}
	l.run("echo second >file")
	w.kill(func() { must(t, forgetLayers(w.Data)) })
	for id := range l.snapshots {
		must(t, l.Repeat(w.ctx, http.MethodPost, l.Path("/restore"), map[string]any{"snapshot": id}, nil))
		l.has("first", "gone back")
	}
}

// forgetLayers removes what can be fetched again. No server may run.
func forgetLayers(data string) error {
	var errs []error
	for _, name := range []string{"layers", "names", "boot"} {
		errs = append(errs, os.RemoveAll(filepath.Join(data, "snapshots", name)))
	}
	return errors.Join(errs...)
}
