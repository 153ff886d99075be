package e2e

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/e2e/harness/wire"
	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/internal/s3server"
)

// cloud is an S3 server that can be told to answer otherwise, at the end of a
// wire that can be told to break.
type cloud struct {
	*wire.Wire
	s3     *s3server.Server
	proxy  http.Handler
	answer atomic.Pointer[http.HandlerFunc] // instead of the server's own
}

// newCloud starts a server that keeps its blobs in a bucket.
func newCloud(t *testing.T, change ...func(*rig.Server)) (*world, *cloud) {
	t.Helper()
	c := new(cloud)
	var err error
	c.s3, err = s3server.Start(t.Context(), "dormouse")
	must(t, err)
	t.Cleanup(func() { must(t, c.s3.Close()) })
	to, err := url.Parse(c.s3.URL())
	must(t, err)
	c.proxy = &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.Out.Host = r.In.Host // it is signed
	}}
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f := c.answer.Load(); f != nil {
			(*f)(w, r)
			return
		}
		c.proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(h.Close)
	c.Wire, err = wire.New("tcp", h.Listener.Addr().String())
	must(t, err)
	t.Cleanup(c.Close)
	w := newWorld(t, append(change, func(s *rig.Server) {
		s.Env = append(s.Env, "AWS_ACCESS_KEY_ID="+s3server.AccessKey, "AWS_SECRET_ACCESS_KEY="+s3server.SecretKey)
		file, err := json.Marshal(map[string]string{
			"blobs": "s3://dormouse/e2e", "s3_endpoint": "http://" + c.Addr(), "s3_region": s3server.Region,
		})
		must(t, err)
		must(t, os.MkdirAll(s.Data, 0o700))
		must(t, os.WriteFile(filepath.Join(s.Data, "config.json"), file, 0o600)) // for its tools as well
	})...)
	return w, c
}

// refuses answers every request as a server does that will not.
func (c *cloud) refuses(status int, code string) {
	f := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, "<Error><Code>"+code+"</Code><Message>no</Message></Error>")
	})
	c.answer.Store(&f)
}

// heals makes server and wire sound again.
func (c *cloud) heals(t *testing.T) {
	c.answer.Store(nil)
	must(t, c.Heal())
}

// TestB32: an S3 server that fails holds up what is large, and nothing else.
func TestB32BlobsThatCannotBeStoredHoldUpOnlyWhatIsLarge(t *testing.T) {
	t.Parallel()
	w, c := newCloud(t)
	for _, fault := range []struct {
		name string
		fall func()
	}{
		{"down", c.Refuse},
		{"503", func() { c.refuses(http.StatusServiceUnavailable, "SlowDown") }},
		{"500", func() { c.refuses(http.StatusInternalServerError, "InternalError") }},
		{"a key that is no longer good", func() { c.refuses(http.StatusForbidden, "InvalidAccessKeyId") }},
		{"a bucket that is gone", func() { c.refuses(http.StatusNotFound, "NoSuchBucket") }},
	} {
		t.Run(fault.name, func(t *testing.T) {
			a := w.on(t).create(nil)
			a.phase(dormouse.PhaseReady)
			fault.fall()
			before := a.log()
			refused(t, a.Command(w.ctx, "prompts", options{"content": large, "id": "large"}), http.StatusServiceUnavailable, "unavailable")
			if diff := cmp.Diff(before, a.log()); diff != "" {
				t.Errorf("what was refused left its mark: %s", diff)
			}
			a.send("small", a.script(rig.Say("this needs no blob")))
			a.rests()
			ended := a.effects("end")
			a.send("waits", a.script(rig.Bash(a.marked("yes | head -c 100000")), rig.Say("it was only delayed")))
			w.until("the command has ended", func() bool { return a.effects("end") == ended+1 }) // its output has nowhere to go yet
			c.heals(t)
			a.rests()
			a.send("large", a.script(rig.Say("now it is there"))+large)
			a.rests()
			log := a.log()
			if n := len(only(log, dormouse.AttemptStarted)); n != 3 || place(log, dormouse.SessionError) >= 0 || w.Lives() != 1 {
				t.Errorf("it cost an attempt or a server:\n%s", types(log))
			}
		})
	}
}

// TestB32: what cannot be fetched for a while is not taken for lost.
func TestB32BlobsThatCannotBeFetchedAreWaitedFor(t *testing.T) {
	t.Parallel()
	w, c := newCloud(t)
	a := w.create(nil)
	wait, open := w.gate()
	a.send("first", a.script(rig.Bash(a.marked(wait)), rig.Say("done")))
	a.begun(1)
	a.send("large", a.script(rig.Say("it was found"))+large)
	var asked atomic.Int64
	w.kill(func() { // the server that got the prompt is gone then
		f := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodGet || !strings.Contains(r.URL.Path, "/sha256/") {
				c.proxy.ServeHTTP(w, r)
				return
			}
			asked.Add(1)
			w.WriteHeader(http.StatusServiceUnavailable)
		})
		c.answer.Store(&f)
	})
	open()
	w.until("the server has asked for the payload", func() bool { return asked.Load() > 8 })
	c.heals(t)
	a.rests()
	log := a.log()
	if said := only(log, dormouse.AgentMessage); len(said) != 2 || words(said[1]) != "it was found" || place(log, dormouse.PromptCancelled) >= 0 {
		t.Errorf("the prompt was not found again:\n%s", types(log))
	}
}

// TestB32: what a server that is killed has begun to store, the next one stores.
func TestB32ServerKilledWhileItStoresABlobLosesNothing(t *testing.T) {
	t.Parallel()
	var s *rig.Server
	w, _ := newCloud(t, func(server *rig.Server) {
		s = server
		s.Binary = crashing(t)
	})
	plain := s.Env
	for _, point := range []crash.Point{crash.BlobWriting, crash.BlobSynced, crash.BlobRenamed, crash.BlobWritten} {
		t.Run(string(point), func(t *testing.T) {
			a := w.on(t).create(nil)
			a.phase(dormouse.PhaseReady)
			w.kill(func() {
				s.Env = append(slices.Clip(plain), "DORMOUSE_CRASH_AT="+rig.Arm{Point: point}.String())
			})
			w.lull.set(func() { s.Env = plain })
			lives := w.Lives()
			a.send("large", a.script(rig.Say("it was kept"))+large)
			a.rests()
			if n := w.Lives() - lives; n != 1 {
				t.Errorf("the server died %d times, want once", n)
			}
			if log := a.log(); len(only(log, dormouse.UserMessage)) != 1 || len(only(log, dormouse.AgentMessage)) != 1 {
				t.Errorf("the prompt was not answered once:\n%s", types(log))
			}
		})
	}
}

// TestB38: while the way to S3 is broken others are not disturbed, and what was
// held up goes on when it is mended.
func TestB38ServerCutOffFromItsBlobsServesWhatNeedsNone(t *testing.T) {
	t.Parallel()
	w, c := newCloud(t)
	for name, fall := range map[string]func(){"silently": c.Hold, "refused": c.Refuse} {
		t.Run(name, func(t *testing.T) {
			a, b := w.on(t).create(nil), w.on(t).create(nil)
			a.send("before", a.script(rig.Say("all is well"))+large)
			a.rests()
			fall()
			ended := a.effects("end")
			a.send("waits", a.script(rig.Bash(a.marked("yes | head -c 100000")), rig.Say("it was only delayed")))
			w.until("the command has ended", func() bool { return a.effects("end") == ended+1 })
			b.send("small", b.script(rig.Bash(b.marked("true")), rig.Say("this needs no blob")))
			b.rests()
			c.heals(t)
			a.rests()
			if n := len(only(a.log(), dormouse.AttemptStarted)); n != 2 || w.Lives() != 1 {
				t.Errorf("it cost an attempt or a server:\n%s", types(a.log()))
			}
		})
	}
}
