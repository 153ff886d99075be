package scripted_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dormouse-run/dormouse/model"
	"github.com/dormouse-run/dormouse/model/modeltest"
	"github.com/dormouse-run/dormouse/model/scripted"
)

func TestClientKeepsThePromisesOfAModel(t *testing.T) {
	for name, keyed := range map[string]bool{"keyed": true, "not keyed": false} {
		t.Run(name, func(t *testing.T) {
			modeltest.Run(t, func(t *testing.T) modeltest.Subject {
				s, url := serve(t, scripted.Options{Keyed: keyed})
				c := scripted.NewClient(scripted.ClientConfig{BaseURL: url, Keyed: keyed})
				return subject(c, func() int { return s.Calls().Requests })
			})
		})
	}
}

func TestClientAndModelSayTheSame(t *testing.T) {
	_, url := serve(t, scripted.Options{})
	c := scripted.NewClient(scripted.ClientConfig{BaseURL: url + "/"})
	for _, script := range []string{
		`hello`,
		`SCRIPT[{"text":"über alles 🐭","chunks":5}]`,
		`SCRIPT[{"text":"a","tools":[{"name":"bash","input":{"command":"x"}},{"name":"b"}]}]`,
		`SCRIPT[{"text":"whole","tool":"bash","stream":false}]`,
		`SCRIPT[{"text":"half a sen","stop_reason":"max_tokens"}]`,
		`SCRIPT[{"thinking":true,"text":"so","tool":"bash"}]`,
		`SCRIPT[{"thinking":true,"text":"so","tool":"bash","stream":false}]`,
	} {
		var streamed, inProcess []model.Delta
		got, err := c.Reply(t.Context(), request(script), func(d model.Delta) error { streamed = append(streamed, d); return nil })
		if err != nil {
			t.Errorf("%s: %v", script, err)
		}
		want, err := scripted.New(scripted.Options{}).Reply(t.Context(), request(script), func(d model.Delta) error { inProcess = append(inProcess, d); return nil })
		if err != nil {
			t.Errorf("%s: %v", script, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: replies differ: %s", script, diff)
		}
		if diff := cmp.Diff(inProcess, streamed); diff != "" {
			t.Errorf("%s: fragments differ: %s", script, diff)
		}
	}
}

func TestStatusesBecomeKindsOfFailure(t *testing.T) {
	_, url := serve(t, scripted.Options{})
	c := scripted.NewClient(scripted.ClientConfig{BaseURL: url})
	for status, want := range map[int]model.ErrorKind{
		429: model.RateLimited, 529: model.Overloaded, 503: model.Overloaded, 500: model.RequestFailed, 502: model.RequestFailed,
		400: model.Rejected, 401: model.Rejected, 404: model.Rejected, 413: model.Rejected,
	} {
		e := failure(t, c, request(fmt.Sprintf(`SCRIPT[{"error":%d,"retry_after_ms":250}]`, status)))
		if e.Kind != want || e.RetryAfter != 250*time.Millisecond {
			t.Errorf("%d is %s after %v, want %s after 250ms", status, e.Kind, e.RetryAfter, want)
		}
		if !strings.Contains(e.Error(), "scripted") {
			t.Errorf("%d does not say what the server said: %v", status, e)
		}
	}
}

func TestRetryAfterIsReadInEveryForm(t *testing.T) {
	for value, want := range map[string]time.Duration{"": 0, "3": 3 * time.Second, "0.5": 500 * time.Millisecond, "-1": 0, "soon": 0, "NaN": 0, "1e99": 0} {
		c := answering(&http.Response{StatusCode: 429, Header: http.Header{"Retry-After": {value}}, Body: io.NopCloser(strings.NewReader("busy"))})
		if e := failure(t, c, request("hi")); e.RetryAfter != want || e.Kind != model.RateLimited {
			t.Errorf("%q: %v after %v, want %v", value, e, e.RetryAfter, want)
		}
	}
	c := answering(&http.Response{StatusCode: 429, Header: http.Header{"Retry-After": {time.Now().Add(time.Minute).UTC().Format(http.TimeFormat)}}, Body: http.NoBody})
	if e := failure(t, c, request("hi")); e.RetryAfter < 50*time.Second || e.RetryAfter > time.Minute {
		t.Errorf("a date: after %v", e.RetryAfter)
	}
}

// answering is a client whose every request gets res.
func answering(res *http.Response) *scripted.Client {
	return scripted.NewClient(scripted.ClientConfig{BaseURL: "http://model.invalid", Transport: roundTrip(func(*http.Request) (*http.Response, error) { return res, nil })})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestServerThatCannotBeReachedIsAFailedRequest(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused := "http://" + l.Addr().String()
	_ = l.Close()
	untrusted := httptest.NewUnstartedServer(scripted.NewServer(scripted.Options{}))
	untrusted.Config.ErrorLog = quiet()
	untrusted.TLS = &tls.Config{MinVersion: tls.VersionTLS13}
	untrusted.StartTLS()
	defer untrusted.Close()
	for name, url := range map[string]string{"connection refused": refused, "TLS error": untrusted.URL} {
		c := scripted.NewClient(scripted.ClientConfig{BaseURL: url})
		if e := failure(t, c, request("hi")); e.Kind != model.RequestFailed {
			t.Errorf("%s: %v", name, e)
		}
	}
}

func TestBrokenConnectionIsNotTriedAgain(t *testing.T) {
	var requests atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if requests.Add(1) == 1 { // leaves a connection behind that looks usable
			scripted.NewServer(scripted.Options{}).ServeHTTP(w, r)
			return
		}
		panic(http.ErrAbortHandler)
	}))
	defer s.Close()
	c := scripted.NewClient(scripted.ClientConfig{BaseURL: s.URL, Keyed: true})
	for range 2 {
		r := request("hi")
		r.Op = "op_1"
		failure(t, c, r)
	}
	if n := requests.Load(); n != 2 {
		t.Errorf("%d requests for 2 calls", n)
	}
}

func TestRedirectIsNotFollowed(t *testing.T) {
	var requests atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	}))
	defer s.Close()
	c := scripted.NewClient(scripted.ClientConfig{BaseURL: s.URL})
	if e := failure(t, c, request("hi")); e.Kind != model.Rejected || requests.Load() != 1 {
		t.Errorf("%d requests: %v", requests.Load(), e)
	}
}

func TestSilenceEndsACall(t *testing.T) {
	_, url := serve(t, scripted.Options{})
	for name, script := range map[string]string{
		"before the first byte":   `SCRIPT[{"hang":true}]`,
		"in the middle of a text": `SCRIPT[{"text":"abcdef","chunk_delay_ms":600000}]`,
	} {
		c := scripted.NewClient(scripted.ClientConfig{BaseURL: url, HeaderTimeout: 200 * time.Millisecond, IdleTimeout: 200 * time.Millisecond})
		if e := failure(t, c, request(script)); e.Kind != model.RequestFailed || !strings.Contains(e.Error(), "nothing came in time") {
			t.Errorf("%s: %v", name, e)
		}
	}
}

func TestSlowStreamThatKeepsTalkingIsHeardOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stream := strings.NewReader(sse(start, textStart, hello, hello, hello, stop0, endTurn, end))
		answer := func(r *http.Request) (*http.Response, error) {
			body := io.NopCloser(slowly{r.Context(), stream})
			return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: body}, nil
		}
		c := scripted.NewClient(scripted.ClientConfig{BaseURL: "http://model.invalid", IdleTimeout: 90 * time.Second, Transport: roundTrip(answer)})
		if diff := cmp.Diff([]string{"hellohellohello"}, words(reply(t, c, request("hi")))); diff != "" {
			t.Error(diff)
		}
	})
}

// slowly sends a few bytes a minute, until its client disconnects.
type slowly struct {
	ctx context.Context //nolint:containedctx // the request's, as of any body
	all io.Reader
}

func (s slowly) Read(b []byte) (int, error) {
	select {
	case <-time.After(time.Minute):
		return s.all.Read(b[:min(len(b), 64)])
	case <-s.ctx.Done():
		return 0, context.Cause(s.ctx)
	}
}

func TestCutStreamIsAFailedRequest(t *testing.T) {
	_, url := serve(t, scripted.Options{})
	c := scripted.NewClient(scripted.ClientConfig{BaseURL: url})
	for _, script := range []string{
		`SCRIPT[{"text":"abcdef","chunks":3,"cut":2,"times":9}]`,
		`SCRIPT[{"text":"abcdef","cut":0}]`,
		`SCRIPT[{"text":"abcdef","cut":1,"stream":false}]`,
	} {
		if e := failure(t, c, request(script)); e.Kind != model.RequestFailed {
			t.Errorf("%s: %v", script, e)
		}
	}
}

func TestCallThatIsCancelledSaysWhy(t *testing.T) {
	_, url := serve(t, scripted.Options{})
	c := scripted.NewClient(scripted.ClientConfig{BaseURL: url})
	why := errors.New("a person interrupted")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	_, err := c.Reply(ctx, request(`SCRIPT[{"text":"abcdef","chunk_delay_ms":600000}]`), func(model.Delta) error {
		cancel(why)
		return nil
	})
	if !errors.Is(err, why) {
		t.Errorf("got %v", err)
	}
}

func TestKeyIsSentAndNeverShown(t *testing.T) {
	var key string
	c := scripted.NewClient(scripted.ClientConfig{BaseURL: "http://model.invalid", Key: "sk-secret", Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		key = r.Header.Get("X-Api-Key")
		return nil, errors.New("no network")
	})})
	e := failure(t, c, request("hi"))
	if key != "sk-secret" || strings.Contains(e.Error(), "sk-secret") {
		t.Errorf("key %q, error %v", key, e)
	}
}

func TestOneConnectionCarriesManyReplies(t *testing.T) {
	var opened atomic.Int32
	answers := scripted.NewServer(scripted.Options{})
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answers.ServeHTTP(w, r)
		time.Sleep(5 * time.Millisecond) // all is said, and the end comes later
	}))
	srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			opened.Add(1)
		}
	}
	srv.Start()
	t.Cleanup(srv.Close)
	// The end of a reply is waited for, but not for long: a busy machine may need
	// more than one try to be in time.
	for try := 1; ; try++ {
		opened.Store(0)
		c := scripted.NewClient(scripted.ClientConfig{BaseURL: srv.URL})
		for range 5 {
			if _, err := c.Reply(t.Context(), model.Request{Model: "m", Messages: modeltest.User("hi")}, func(model.Delta) error { return nil }); err != nil {
				t.Fatal(err)
			}
		}
		n := opened.Load()
		if n == 1 {
			return
		}
		if try == 20 {
			t.Fatalf("%d connections for 5 replies one after the other", n)
		}
	}
}
