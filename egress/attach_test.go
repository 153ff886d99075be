package egress_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/egress"
	"github.com/dormouse-run/dormouse/vault"
)

// seen is what an upstream was sent.
type seen struct {
	Method, Host, URI, Body string
	Length                  int64
	Header                  http.Header
}

// watcher is an upstream that tells what it was sent, and answers ok.
func watcher() (http.HandlerFunc, chan seen) {
	got := make(chan seen, 100)
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- seen{r.Method, r.Host, r.RequestURI, string(body), r.ContentLength, r.Header}
		_, _ = io.WriteString(w, "ok")
	}, got
}

func TestAPlaceholderIsSwappedOnTheWayToItsHost(t *testing.T) {
	both(t, func(t *testing.T, h2 bool) {
		h, got := watcher()
		w := newWorld(t, h)
		res, body := send(t, w.program(t, h2), "POST", "https://"+w.host+"/a%2Fb/../c?q="+placeholder, strings.NewReader("with "+placeholder),
			"Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte("x:"+placeholder)), "Private-Token", placeholder, "X-Forwarded-For", "1")
		if res.StatusCode != http.StatusOK || body != "ok" || res.ProtoMajor == 2 != h2 {
			t.Fatalf("%s %s %q", res.Proto, res.Status, body)
		}
		s := <-got
		basic := "Basic " + base64.StdEncoding.EncodeToString([]byte("x:"+secret))
		if s.Header.Get("Authorization") != basic || s.Header.Get("Private-Token") != secret {
			t.Errorf("%v", s.Header)
		}
		if s.Host != w.host || s.URI != "/a%2Fb/../c?q="+placeholder || s.Body != "with "+placeholder {
			t.Errorf("%+v", s)
		}
		begun, outcomes := w.journal.take(t)
		want := []egress.Mutation{{Session: "sesn_test", Vault: "vlt_1", Credential: "vcrd_1", Method: "POST", Host: w.host, Path: "/a%2Fb/../c"}}
		if diff := cmp.Diff(want, begun); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]egress.Outcome{{State: egress.Finished, Status: 200}}, outcomes); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		l := w.audit.lines(t, 1)[0]
		if l.Method != "POST" || l.Path != "/a%2Fb/../c" || l.Credential != "vcrd_1" || l.NotAttached != "vcrd_1: it is not for URLs" || l.Verdict != "allowed" || l.Sent != 30 || l.Received != 2 {
			t.Errorf("%+v", l)
		}
		w.audit.mu.Lock()
		defer w.audit.mu.Unlock()
		if strings.Contains(w.audit.text.String(), secret) {
			t.Error("the audit shows the secret")
		}
	})
}

func TestABearerReplacesTheProgramsOwnAuthorization(t *testing.T) { // E61
	both(t, func(t *testing.T, h2 bool) {
		h, got := watcher()
		w := newWorld(t, h)
		g := w.grant(t)
		g.Bearer, g.Placeholder, g.Paths = true, "", []string{"/mcp"}
		w.keeper.set(nil, g)
		c := w.program(t, h2)
		send(t, c, "GET", "https://"+w.host+"/mcp/x", nil, "Authorization", "Bearer mine", "Authorization", "Basic eDp5")
		if a := (<-got).Header["Authorization"]; len(a) != 1 || a[0] != "Bearer "+secret {
			t.Errorf("%q", a)
		}
		send(t, c, "GET", "https://"+w.host+"/mcpx", nil, "Authorization", "Bearer mine") // E67
		if a := (<-got).Header["Authorization"]; len(a) != 1 || a[0] != "Bearer mine" {
			t.Errorf("%q", a)
		}
		if l := w.audit.lines(t, 2)[1]; l.Credential != "" || !strings.Contains(l.NotAttached, "does not include this path") {
			t.Errorf("%+v", l)
		}
	})
}

// A header that the program calls hop-by-hop is taken away before the credential is put on.
func TestAProgramCannotTakeTheCredentialAway(t *testing.T) {
	h, got := watcher()
	w := newWorld(t, h)
	g := w.grant(t)
	g.Bearer = true
	w.keeper.set(nil, g)
	w.rawInside(t, "GET / HTTP/1.1\r\nHost: "+w.host+"\r\nConnection: close, Authorization\r\nAuthorization: Bearer mine\r\n\r\n")
	if a := (<-got).Header.Get("Authorization"); a != "Bearer "+secret {
		t.Errorf("%q", a)
	}
}

func TestAPlaceholderThatDoesNotBelongThereGoesOutAsItIs(t *testing.T) { // E59, E67
	h, got := watcher()
	w := newWorld(t, h)
	mine := func(change func(*egress.Grant)) egress.Grant {
		g := w.grant(t)
		change(&g)
		g.Credential, g.Secret = "vcrd_2", func(context.Context) (vault.Secret, error) {
			t.Error("the secret was asked for")
			return vault.Secret{}, nil
		}
		return g
	}
	covering := w.grant(t)
	covering.Placeholder, covering.Credential = "dormouse_another", "vcrd_0"
	requests := 0
	for why, g := range map[string]egress.Grant{
		"this host is not in its grant":          mine(func(g *egress.Grant) { g.Hosts = []dormouse.Host{host(t, "elsewhere.example")} }),
		"its grant does not include this method": mine(func(g *egress.Grant) { g.Methods = []string{"GET", "HEAD"} }),
		"its grant does not include this path":   mine(func(g *egress.Grant) { g.Paths = []string{"/owner/repo"} }),
		"it is not for headers":                  mine(func(g *egress.Grant) { g.Header = false }),
	} {
		w.keeper.set(nil, covering, g)
		send(t, w.program(t, false), "DELETE", "https://"+w.host+"/owner/other", nil, "Authorization", "token "+placeholder)
		if a := (<-got).Header.Get("Authorization"); a != "token "+placeholder {
			t.Errorf("%s: %q", why, a)
		}
		found := false
		requests++
		for _, l := range w.audit.lines(t, requests) {
			found = found || l.NotAttached == "vcrd_2: "+why && l.Credential == ""
		}
		if !found {
			t.Errorf("the audit does not say that %s", why)
		}
	}
	if begun, _ := w.journal.take(t); len(begun) > 0 {
		t.Errorf("%v", begun)
	}
}

func TestNoCredentialGoesOutInTheClear(t *testing.T) { // E58
	h, got := watcher()
	_, addr := upstream(t, h)
	w := (&world{ca: newCA(t), keeper: &keeper{}, journal: &journal{}}).serve(t, addr)
	res, _ := send(t, w.client(t), "GET", "http://"+w.host+"/", nil, "Authorization", placeholder)
	if a := (<-got).Header.Get("Authorization"); res.StatusCode != http.StatusOK || a != placeholder {
		t.Errorf("%s %q", res.Status, a)
	}
	if l := w.audit.lines(t, 1)[0]; l.NotAttached != "vcrd_1: the request is not https" || l.Path != "" {
		t.Errorf("%+v", l)
	}
	// An https request to a host that speaks no TLS.
	res, body := send(t, w.program(t, false), "GET", "https://"+w.host+"/", nil, "Authorization", placeholder)
	if res.StatusCode != http.StatusBadGateway || !strings.Contains(body, "does not speak TLS") || len(got) > 0 {
		t.Errorf("%s %s", res.Status, body)
	}
}

func TestWhatIsRotatedOrRevokedHoldsFromTheNextRequest(t *testing.T) {
	both(t, func(t *testing.T, h2 bool) {
		h, got := watcher()
		w := newWorld(t, h)
		c := w.program(t, h2)
		g := w.grant(t)
		for _, value := range []string{"first_secret", "second_secret"} {
			g.Secret = func(context.Context) (vault.Secret, error) { return vault.NewSecret(value), nil }
			w.keeper.set(nil, g)
			send(t, c, "GET", "https://"+w.host+"/", nil, "Authorization", placeholder)
			if a := (<-got).Header.Get("Authorization"); a != value {
				t.Errorf("%q, want %q", a, value)
			}
		}
		w.keeper.set(nil)
		send(t, c, "GET", "https://"+w.host+"/", nil, "Authorization", placeholder)
		if a := (<-got).Header.Get("Authorization"); a != placeholder {
			t.Errorf("%q", a)
		}
	})
}

func TestNothingIsSentWithoutTheSecretOrTheRecord(t *testing.T) { // E53, E73
	both(t, func(t *testing.T, h2 bool) {
		h, got := watcher()
		w := newWorld(t, h)
		away := errors.New("the key is at 10.0.0.1")
		with := func(s string, err error) egress.Grant {
			g := w.grant(t)
			g.Secret = func(context.Context) (vault.Secret, error) { return vault.NewSecret(s), err }
			return g
		}
		gone := make(chan struct{})
		close(gone)
		revoked := w.grant(t)
		revoked.Revoked = gone
		for name, g := range map[string]egress.Grant{
			"vault down": with("", away),
			"empty":      with("", nil),
			"CR LF":      with("a\r\nX-Injected: 1", nil),
			"NUL":        with("a\x00b", nil),
			"LF":         with("a\n", nil),
			"revoked":    revoked,
		} {
			w.keeper.set(nil, g)
			res, body := send(t, w.program(t, h2), "POST", "https://"+w.host+"/", strings.NewReader("x"), "Authorization", placeholder)
			if res.StatusCode != http.StatusServiceUnavailable || strings.Contains(body, "10.0.0.1") {
				t.Errorf("%s: %s %s", name, res.Status, body)
			}
		}
		w.keeper.set(nil, w.grant(t))
		c := w.program(t, h2)
		w.journal.err = away
		if res, body := send(t, c, "POST", "https://"+w.host+"/", strings.NewReader("x"), "Authorization", placeholder); res.StatusCode != http.StatusServiceUnavailable || strings.Contains(body, "10.0.0.1") {
			t.Errorf("%s %s", res.Status, body)
		}
		w.keeper.set(away)
		// By HTTP/1 the connection is another by now, and its CONNECT is refused.
		res, body, err := try(t.Context(), c, "GET", "https://"+w.host+"/", nil, "Authorization", placeholder)
		if err == nil && res.StatusCode != http.StatusServiceUnavailable || err != nil && !strings.Contains(err.Error(), "Service Unavailable") || strings.Contains(body, "10.0.0.1") {
			t.Errorf("%v %s %v", res, body, err)
		}
		if status, _ := w.raw(t, "CONNECT "+w.host+" HTTP/1.1\r\nHost: x\r\n\r\n"); status != http.StatusServiceUnavailable {
			t.Errorf("CONNECT: %d", status)
		}
		if len(got) > 0 {
			t.Errorf("%+v was sent", <-got)
		}
		if begun, _ := w.journal.take(t); len(begun) > 0 {
			t.Errorf("%v", begun)
		}
	})
}

func TestBodiesAreSwappedWhereTheCredentialSaysSo(t *testing.T) {
	both(t, func(t *testing.T, h2 bool) {
		h, got := watcher()
		w := newWorld(t, h)
		g := w.grant(t)
		g.Header, g.Body = false, true
		w.keeper.set(nil, g)
		c := w.program(t, h2)
		large := strings.Repeat("x", 8<<20)
		for name, b := range map[string]struct {
			kind, coding, sent, want string
			unknown                  bool
			length                   int64
			uses                     bool
		}{
			"json":            {kind: "application/json", sent: `{"t":"` + placeholder + `"}`, want: `{"t":"` + secret + `"}`, uses: true},
			"form":            {kind: "application/x-www-form-urlencoded", sent: "t=" + placeholder, want: "t=ghp_c4n4ry%2FS3cr3t%2B0123456789", uses: true},
			"no placeholder":  {kind: "text/plain", sent: "hello", want: "hello"},
			"unknown length":  {kind: "text/plain", sent: "a" + placeholder + "b", want: "a" + secret + "b", unknown: true, length: -1, uses: true},
			"eight MiB":       {kind: "text/plain", sent: placeholder + large[len(placeholder):], want: secret + large[len(placeholder):], uses: true},
			"more than eight": {kind: "text/plain", sent: placeholder + large, want: placeholder + large},
			"compressed":      {kind: "text/plain", coding: "gzip", sent: placeholder, want: placeholder},
			"grpc":            {kind: "application/grpc", sent: placeholder, want: placeholder},
		} {
			var body io.Reader = strings.NewReader(b.sent)
			if b.unknown {
				body = struct{ io.Reader }{body}
			}
			header := []string{"Content-Type", b.kind, "Authorization", placeholder, "Content-Digest", "sha-256=:x:"}
			if b.coding != "" {
				header = append(header, "Content-Encoding", b.coding)
			}
			send(t, c, "PUT", "https://"+w.host+"/", body, header...)
			s := <-got
			if b.length == 0 {
				b.length = int64(len(b.want))
			}
			if s.Body != b.want || s.Length != b.length {
				t.Errorf("%s: %d bytes, length %d: %.80q", name, len(s.Body), s.Length, s.Body)
			}
			if s.Header.Get("Authorization") != placeholder {
				t.Errorf("%s: %q", name, s.Header)
			}
			if digest := s.Header.Get("Content-Digest"); (digest == "") != b.uses {
				t.Errorf("%s: digest %q", name, digest)
			}
			if begun, _ := w.journal.take(t); (len(begun) == 1) != b.uses {
				t.Errorf("%s: %v", name, begun)
			}
		}
		notes := ""
		for _, l := range w.audit.lines(t, 8) {
			notes += l.NotAttached
		}
		for _, want := range []string{"larger than 8 MiB", "compressed", "lengths would be wrong"} {
			if !strings.Contains(notes, want) {
				t.Errorf("the audit does not say %q: %s", want, notes)
			}
		}
	})
}

func TestBodiesInMemoryAreFew(t *testing.T) { // E80
	h, got := watcher()
	w := newWorld(t, h)
	g := w.grant(t)
	g.Body = true
	w.keeper.set(nil, g)
	c := w.program(t, true)
	const uploads = 12
	done := make(chan struct{})
	for range uploads {
		go func() {
			_, _, _ = try(t.Context(), c, "POST", "https://"+w.host+"/", bytes.NewReader(bytes.Repeat([]byte(placeholder), 1000)))
			done <- struct{}{}
		}()
	}
	for range uploads {
		<-done
		if s := <-got; s.Body != strings.Repeat(secret, 1000) {
			t.Errorf("%d bytes", len(s.Body))
		}
	}
}
