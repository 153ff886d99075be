package egress_test

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/klauspost/compress/zstd"

	"github.com/dormouse-run/dormouse/egress"
)

// echoes are the secret as an upstream may send it back.
func echoes() map[string]string {
	js, _ := json.Marshal(secret)
	basic := func(user string) string { return base64.StdEncoding.EncodeToString([]byte(user + ":" + secret)) }
	return map[string]string{
		"raw": secret, "bearer": "Bearer " + secret, "query": url.QueryEscape(secret), "path": url.PathEscape(secret),
		"json": string(js), "hex": hex.EncodeToString([]byte(secret)),
		"basic": "Basic " + basic("ab"), "basic 1": "Basic " + basic("abc"), "basic 2": "Basic " + basic("abcd"),
	}
}

// leaks reports whether a text shows the secret, or enough of it in base64.
func leaks(text string) bool {
	lower := strings.ToLower(text)
	for name, f := range echoes() {
		if strings.HasPrefix(name, "basic") {
			f = f[len(f)-24 : len(f)-6]
		}
		if strings.Contains(text, f) || strings.Contains(lower, strings.ToLower(f)) {
			return true
		}
	}
	return false
}

func compressed(t testing.TB, coding, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	var z io.WriteCloser
	switch coding {
	case "gzip", "x-gzip":
		z = gzip.NewWriter(&b)
	case "deflate":
		z = zlib.NewWriter(&b)
	case "raw deflate":
		z, _ = flate.NewWriter(&b, flate.DefaultCompression)
	case "zstd":
		z, _ = zstd.NewWriter(&b)
	default:
		return []byte(text)
	}
	_, _ = io.WriteString(z, text)
	_ = z.Close()
	return b.Bytes()
}

func TestWhatTheUpstreamEchoesComesBackMasked(t *testing.T) { // E64
	both(t, func(t *testing.T, h2 bool) {
		var form, coding string
		w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
			if e := r.Header.Get("Accept-Encoding"); e != "identity" || r.Header.Get("Range") != "" {
				t.Errorf("asks for %q, %q", e, r.Header.Get("Range"))
			}
			rw.Header().Set("Link", form) // ahead of the answer
			rw.WriteHeader(http.StatusEarlyHints)
			rw.Header().Set("X-Echo", form)
			rw.Header().Set("Trailer", "X-Trailer")
			if coding != "" {
				rw.Header().Set("Content-Encoding", strings.TrimPrefix(coding, "raw "))
				rw.Header().Set("ETag", `"x"`)
				rw.Header().Set("Content-Digest", "sha-256=:x:")
			}
			body := compressed(t, coding, "before "+form+" after")
			for len(body) > 0 { // in pieces
				n := min(len(body), 5)
				_, _ = rw.Write(body[:n])
				_ = http.NewResponseController(rw).Flush()
				body = body[n:]
			}
			rw.Header().Set("X-Trailer", form)
			rw.Header().Set(http.TrailerPrefix+"X-Unannounced", form)
		})
		c := w.program(t, h2)
		for _, coding = range []string{"", "gzip", "x-gzip", "deflate", "raw deflate", "zstd"} {
			for name, f := range echoes() {
				form = f
				early := ""
				ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(_ int, h textproto.MIMEHeader) error {
					early += fmt.Sprint(h)
					return nil
				}})
				res, body, err := try(ctx, c, "GET", "https://"+w.host+"/", nil, "Authorization", placeholder, "Accept-Encoding", "br, gzip", "Range", "bytes=0-3")
				if err != nil {
					t.Fatalf("%s in %q: %v", name, coding, err)
				}
				all := early + fmt.Sprint(res.Header, res.Trailer, body)
				if leaks(all) || !strings.HasPrefix(body, "before ") || !strings.HasSuffix(body, " after") || len(body) != len("before "+form+" after") {
					t.Errorf("%s in %q: %s", name, coding, all)
				}
				if !strings.Contains(early, "**") || !strings.Contains(res.Trailer.Get("X-Trailer"), "**") || !strings.Contains(res.Trailer.Get("X-Unannounced"), "**") {
					t.Errorf("%s in %q: %q, %v", name, coding, early, res.Trailer)
				}
				if res.Header.Get("Content-Encoding") != "" || coding != "" && (res.Header.Get("ETag") != `W/"x"` || res.Header.Get("Content-Digest") != "") {
					t.Errorf("%q: %v", coding, res.Header)
				}
			}
		}
	})
}

func TestAnAnswerThatCannotBeSearchedIsNotPassedOn(t *testing.T) {
	both(t, func(t *testing.T, h2 bool) {
		var coding, body string
		status := http.StatusOK
		w := newWorld(t, func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Content-Encoding", coding)
			rw.WriteHeader(status)
			_, _ = io.WriteString(rw, body)
		})
		c := w.program(t, h2)
		part := string(compressed(t, "gzip", secret))
		for _, bad := range []struct {
			coding, body string
			status       int
		}{{"br", secret, 200}, {"compress", secret, 200}, {"gzip, br", secret, 200}, {"gzip, gzip", part, 200}, {"x", secret, 200}, {"gzip", secret, 200}, {"deflate", secret, 200}, {"zstd", secret, 200}, {"gzip", part, 206}} {
			coding, body, status = bad.coding, bad.body, bad.status
			res, text := send(t, c, "GET", "https://"+w.host+"/", nil, "Authorization", placeholder)
			if res.StatusCode != http.StatusBadGateway || leaks(text) || !strings.Contains(text, "cannot be searched") {
				t.Errorf("%+v: %s %s", bad, res.Status, text)
			}
		}
		coding, body, status = "gzip", string(compressed(t, "gzip", strings.Repeat("x", 1<<20))), 200
		body = body[:len(body)/2]
		if _, text, err := try(t.Context(), c, "GET", "https://"+w.host+"/", nil, "Authorization", placeholder); err == nil {
			t.Errorf("a body that broke off is whole: %d bytes", len(text))
		}
		// Without a credential it is the program's own affair.
		coding, body = "br", "whatever"
		if res, text := send(t, c, "GET", "https://"+w.host+"/", nil); res.StatusCode != http.StatusOK || text != body || res.Header.Get("Content-Encoding") != "br" {
			t.Errorf("%s %s", res.Status, text)
		}
		coding, body = "br", ""
		if res, _ := send(t, c, "HEAD", "https://"+w.host+"/", nil, "Authorization", placeholder); res.StatusCode != http.StatusOK {
			t.Error(res.Status)
		}
	})
}

func TestAnEventComesBeforeTheLastIsSent(t *testing.T) {
	both(t, func(t *testing.T, h2 bool) {
		for _, coding := range []string{"", "gzip"} {
			next := make(chan struct{})
			w := newWorld(t, func(rw http.ResponseWriter, _ *http.Request) {
				rw.Header().Set("Content-Type", "text/event-stream")
				var to io.Writer = rw
				flush := func() { _ = http.NewResponseController(rw).Flush() }
				if coding == "gzip" {
					rw.Header().Set("Content-Encoding", "gzip")
					z := gzip.NewWriter(rw)
					to = z
					flush = func() { _ = z.Flush(); _ = http.NewResponseController(rw).Flush() }
				}
				for i := range 3 {
					_, _ = fmt.Fprintf(to, "data: %d %s\n\n", i, secret)
					flush()
					<-next
				}
			})
			req, _ := http.NewRequestWithContext(t.Context(), "POST", "https://"+w.host+"/", strings.NewReader("{}"))
			req.Header.Set("Authorization", placeholder)
			res, err := w.program(t, h2).Do(req)
			if err != nil {
				t.Fatal(err)
			}
			from := bufio.NewReader(res.Body)
			for i := range 3 {
				line, err := from.ReadString('\n')
				if want := fmt.Sprintf("data: %d %s\n", i, strings.Repeat("*", len(secret))); err != nil || line != want {
					t.Fatalf("%q, %v", line, err)
				}
				_, _ = from.ReadString('\n')
				next <- struct{}{}
			}
			_ = res.Body.Close()
		}
	})
}

// A bidirectional stream of messages in which each waits for the one before, with trailers
// at the end, as gRPC has it.
func TestMessagesGoBothWaysAndTrailersCome(t *testing.T) {
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 || r.Header.Get("Te") != "trailers" || r.Header.Get("Authorization") != "Bearer "+secret || r.Header.Get("Grpc-Accept-Encoding") != "" {
			t.Errorf("%s %v", r.Proto, r.Header)
		}
		rw.Header().Set("Content-Type", "application/grpc")
		rw.Header().Set("Trailer", "Grpc-Status, Grpc-Message")
		rw.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(rw).Flush()
		for {
			m, err := message(r.Body)
			if err != nil {
				break
			}
			_, _ = rw.Write(framed(m))
			_ = http.NewResponseController(rw).Flush()
		}
		rw.Header().Set("Grpc-Status", "0")
		rw.Header().Set("Grpc-Message", secret)
	})
	up, feed := io.Pipe()
	req, _ := http.NewRequestWithContext(t.Context(), "POST", "https://"+w.host+"/svc/Method", up)
	for k, v := range map[string]string{"Authorization": "Bearer " + placeholder, "Te": "trailers", "Content-Type": "application/grpc", "Grpc-Accept-Encoding": "gzip"} {
		req.Header.Set(k, v)
	}
	res, err := w.program(t, true).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	stars := func(n int) string { return strings.Repeat("*", n) }
	for _, c := range [][2]string{{"hello", "hello"}, {"ends with g", "ends with g"}, {"ends with ghp_", "ends with ghp_"}, {secret, stars(len(secret))}, {"bye", "bye"}} {
		go func() { _, _ = feed.Write(framed([]byte(c[0]))) }()
		m, err := message(res.Body)
		if err != nil || string(m) != c[1] {
			t.Fatalf("%q: %q, %v", c[0], m, err)
		}
	}
	_ = feed.Close()
	if rest, err := io.ReadAll(res.Body); err != nil || len(rest) > 0 {
		t.Errorf("%q, %v", rest, err)
	}
	if res.Trailer.Get("Grpc-Status") != "0" || res.Trailer.Get("Grpc-Message") != stars(len(secret)) {
		t.Errorf("%v", res.Trailer)
	}
}

func framed(m []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(m))), m...)
}

func message(from io.Reader) ([]byte, error) {
	var head [5]byte
	if _, err := io.ReadFull(from, head[:]); err != nil {
		return nil, err
	}
	m := make([]byte, binary.BigEndian.Uint32(head[1:]))
	_, err := io.ReadFull(from, m)
	return m, err
}

func TestAWebSocketHasACredentialAndItsFramesAreMasked(t *testing.T) {
	gone := make(chan struct{})
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+secret || r.Header.Get("Sec-WebSocket-Extensions") != "" {
			t.Errorf("%v", r.Header)
		}
		rw.Header().Set("X-Echo", secret)
		c, err := websocket.Accept(rw, r, &websocket.AcceptOptions{CompressionMode: websocket.CompressionContextTakeover})
		if err != nil {
			t.Error(err)
			return
		}
		for {
			kind, m, err := c.Read(r.Context())
			if err != nil {
				return
			}
			_ = c.Write(r.Context(), kind, m)
		}
	})
	g := w.grant(t)
	g.Revoked = gone
	w.keeper.set(nil, g)
	c, res, err := websocket.Dial(t.Context(), "wss://"+w.host+"/", &websocket.DialOptions{
		HTTPClient: w.program(t, false), CompressionMode: websocket.CompressionContextTakeover,
		HTTPHeader: http.Header{"Authorization": {"Bearer " + placeholder}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.CloseNow() }()
	if leaks(fmt.Sprint(res.Header)) || !strings.Contains(res.Header.Get("X-Echo"), "**") {
		t.Errorf("%v", res.Header)
	}
	for _, m := range []string{"hello", "ends with ghp_", secret, "x" + secret + "y", strings.Repeat(secret, 1000), placeholder} {
		if err := c.Write(t.Context(), websocket.MessageText, []byte(m)); err != nil {
			t.Fatal(err)
		}
		c.SetReadLimit(1 << 20)
		_, got, err := c.Read(t.Context())
		want := strings.ReplaceAll(m, secret, strings.Repeat("*", len(secret)))
		if len(m) > 1000 { // it comes in pieces, after which a few bytes may be let go
			got, want = bytes.ReplaceAll(got, []byte("ghp_"), []byte("****")), strings.Repeat("*", len(m))
		}
		if err != nil || string(got) != want {
			t.Errorf("%.60q: %.60q, %v", m, got, err)
		}
	}
	since := time.Now()
	close(gone)
	if _, _, err := c.Read(t.Context()); err == nil || time.Since(since) > time.Second {
		t.Errorf("%v after %v", err, time.Since(since))
	}
	if l := w.request(t); l.Verdict != "revoked" || l.Credential != "vcrd_1" || l.Sent == 0 || l.Received == 0 {
		t.Errorf("%+v", l)
	}
}

func TestALargeUploadStreams(t *testing.T) { // E80
	both(t, func(t *testing.T, h2 bool) {
		var first atomic.Bool
		w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
			b := make([]byte, 1)
			_, _ = io.ReadFull(r.Body, b)
			first.Store(true)
			n, err := io.Copy(io.Discard, r.Body)
			_, _ = fmt.Fprint(rw, n+1, err)
		})
		const size = 64 << 20
		up, feed := io.Pipe()
		go func() {
			_, _ = feed.Write([]byte("x"))
			for !first.Load() {
				time.Sleep(time.Millisecond)
			}
			_, _ = io.CopyN(feed, endless{}, size-1)
			_ = feed.Close()
		}()
		_, body := send(t, w.program(t, h2), "PUT", "https://"+w.host+"/", up, "Authorization", placeholder)
		if body != fmt.Sprint(size, " <nil>") {
			t.Error(body)
		}
	})
}

func TestAnExpectationInsideIsPassedOnAndAnswered(t *testing.T) { // E52
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/no" {
			rw.WriteHeader(http.StatusExpectationFailed)
			return
		}
		_, _ = io.Copy(rw, r.Body)
	})
	for path, want := range map[string]int{"/yes": http.StatusOK, "/no": http.StatusExpectationFailed} {
		for range 3 {
			res, body := send(t, w.program(t, false), "POST", "https://"+w.host+path, strings.NewReader("body"), "Authorization", placeholder, "Expect", "100-continue")
			if res.StatusCode != want || want == http.StatusOK && body != "body" {
				t.Errorf("%s: %s %q", path, res.Status, body)
			}
		}
	}
}

func BenchmarkIntercepted(b *testing.B) {
	chunk := bytes.Repeat([]byte("{\"id\": 12345, \"name\": \"a repository\"}\n"), 1<<14)
	h := func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Length", fmt.Sprint(32*len(chunk)))
		for range 32 {
			_, _ = rw.Write(chunk)
		}
	}
	for _, how := range []string{"spliced", "http1", "http2"} {
		b.Run(how, func(b *testing.B) {
			w := newWorld(b, h, func(o *egress.Options) {
				if how == "spliced" {
					o.Credentials = nil
				}
			})
			c := w.program(b, how == "http2")
			if how == "spliced" {
				tr, _ := c.Transport.(*http.Transport)
				tr.TLSClientConfig = &tls.Config{RootCAs: w.ca.pool(), MinVersion: tls.VersionTLS12}
			}
			b.SetBytes(int64(32 * len(chunk)))
			for b.Loop() {
				res, err := c.Do(must(http.NewRequestWithContext(context.Background(), "GET", "https://"+w.host+"/", nil)))
				if err != nil {
					b.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, struct{ io.Reader }{res.Body})
				_ = res.Body.Close()
			}
		})
	}
}

func must(r *http.Request, _ error) *http.Request {
	r.Header.Set("Authorization", placeholder)
	return r
}

// BenchmarkKeptRequest is one small request on a connection that is kept.
func BenchmarkKeptRequest(b *testing.B) {
	for _, how := range []string{"spliced", "intercepted"} {
		b.Run(how, func(b *testing.B) {
			w := newWorld(b, func(rw http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(rw, "ok") }, func(o *egress.Options) {
				if how == "spliced" {
					o.Credentials = nil
				}
			})
			c := w.program(b, false)
			if how == "spliced" {
				tr, _ := c.Transport.(*http.Transport)
				tr.TLSClientConfig = &tls.Config{RootCAs: w.ca.pool(), MinVersion: tls.VersionTLS12}
			}
			for b.Loop() {
				res, err := c.Do(must(http.NewRequestWithContext(context.Background(), "GET", "https://"+w.host+"/", nil)))
				if err != nil {
					b.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, res.Body)
				_ = res.Body.Close()
			}
		})
	}
}
