package egress_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/dormouse-run/dormouse/egress"
)

// dropper is an upstream that answers a first request on each connection, and from the
// second on has the effect and drops the connection without a word.
type dropper struct {
	effects atomic.Int64
	headers chan http.Header
}

func (d *dropper) http1(c net.Conn) {
	from := bufio.NewReader(c)
	for i := 0; ; i++ {
		req, err := http.ReadRequest(from)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, req.Body)
		if i == 0 && req.URL.Path == "/warm" {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
			continue
		}
		d.effects.Add(1)
		d.headers <- req.Header
		return
	}
}

// http2 has the effect and then says that it did nothing: by refusing the stream, by going
// away as if it had not come, or by dropping the connection.
func (d *dropper) http2(how string) func(net.Conn) {
	return func(c net.Conn) {
		preface := make([]byte, len(http2.ClientPreface))
		if _, err := io.ReadFull(c, preface); err != nil {
			return
		}
		f := http2.NewFramer(c, c)
		f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
		_ = f.WriteSettings()
		var block bytes.Buffer
		e := hpack.NewEncoder(&block)
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				return
			}
			switch frame := frame.(type) {
			case *http2.SettingsFrame:
				if !frame.IsAck() {
					_ = f.WriteSettingsAck()
				}
			case *http2.MetaHeadersFrame:
				if frame.PseudoValue("path") == "/warm" {
					block.Reset()
					_ = e.WriteField(hpack.HeaderField{Name: ":status", Value: "200"})
					_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: frame.StreamID, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true})
					continue
				}
				d.effects.Add(1)
				h := http.Header{}
				for _, field := range frame.RegularFields() {
					h.Add(field.Name, field.Value)
				}
				d.headers <- h
				switch how {
				case "refuses":
					_ = f.WriteRSTStream(frame.StreamID, http2.ErrCodeRefusedStream)
				case "goes away":
					_ = f.WriteGoAway(frame.StreamID-2, http2.ErrCodeNo, nil)
					return
				default:
					return
				}
			}
		}
	}
}

// serveDropper serves it by TLS.
func (d *dropper) serve(t *testing.T, w *world, how string) string {
	t.Helper()
	protocols, serve := []string{"http/1.1"}, d.http1
	if how != "" {
		protocols = []string{"h2"}
	}
	config := &tls.Config{Certificates: []tls.Certificate{w.ca.sign(t, &x509.Certificate{DNSNames: []string{"up.example"}})}, NextProtos: protocols, MinVersion: tls.VersionTLS12}
	return accept(t, func(raw *net.TCPConn) {
		c := tls.Server(raw, config)
		if c.HandshakeContext(context.Background()) != nil {
			return
		}
		if c.ConnectionState().NegotiatedProtocol == "h2" {
			d.http2(how)(c)
			return
		}
		serve(c)
	})
}

// What net/http repeats by itself, and that it is not repeated here: requests on a kept
// connection that is dropped once they were read, and those that an HTTP/2 server says it
// did not process.
func TestARequestWithEffectsIsSentOnceAtMost(t *testing.T) { // K9, K10
	for _, how := range []string{"", "drops", "refuses", "goes away"} {
		t.Run(map[string]string{"": "http1"}[how]+how, func(t *testing.T) {
			w := &world{ca: newCA(t), keeper: &keeper{}, journal: &journal{}}
			d := &dropper{headers: make(chan http.Header, 100)}
			w.serve(t, d.serve(t, w, how))
			plain := &http.Transport{
				TLSClientConfig: &tls.Config{RootCAs: w.ca.pool(), MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true,
				DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
					_, port, _ := net.SplitHostPort(w.host)
					return new(net.Dialer).DialContext(ctx, network, "127.0.0.1:"+port)
				},
			}
			t.Cleanup(plain.CloseIdleConnections)
			repeats := false
			for _, method := range []string{"POST", "DELETE"} {
				for _, key := range []string{"", "Idempotency-Key", "x-idempotency-key"} {
					for _, body := range []string{"", "x"} {
						once := func(c *http.Client) int64 {
							for len(d.headers) > 0 {
								<-d.headers
							}
							d.effects.Store(0)
							for range 2 { // so that there are kept connections in each pool
								_, _, _ = try(t.Context(), c, "GET", "https://"+w.host+"/warm", nil, "Authorization", placeholder)
							}
							_, _, _ = try(t.Context(), c, "POST", "https://"+w.host+"/warm", nil, "Authorization", placeholder)
							_, _, _ = try(t.Context(), c, "POST", "https://"+w.host+"/warm", strings.NewReader("x"), "Authorization", placeholder)
							var from io.Reader
							if body != "" {
								from = strings.NewReader(body)
							}
							header := []string{"Authorization", placeholder}
							if key != "" {
								header = append(header, key, "k1")
							}
							before := d.effects.Load()
							_, _, _ = try(t.Context(), c, method, "https://"+w.host+"/effect", from, header...)
							return d.effects.Load() - before
						}
						repeats = repeats || once(&http.Client{Transport: plain, Timeout: 2 * time.Second}) > 1
						for _, h2 := range []bool{false, true} {
							w.journal.take(t)
							if n := once(w.program(t, h2)); n != 1 {
								t.Errorf("%s %s with %q: %d effects", method, key, body, n)
								continue
							}
							got := <-d.headers
							for len(d.headers) > 0 {
								got = <-d.headers
							}
							if has := strings.Contains(strings.ToLower(fmt.Sprint(got)), "idempotency-key:[k1]"); has != (key != "") {
								t.Errorf("%s %s: %v", method, key, got)
							}
							_, outcomes := w.journal.take(t)
							if last := outcomes[len(outcomes)-1]; last.State != egress.Unknown {
								t.Errorf("%s %s: %v", method, key, last)
							}
						}
					}
				}
			}
			// If it no longer does, there is nothing left to prevent.
			if !repeats && how != "drops" {
				t.Error("net/http repeats nothing by itself")
			}
		})
	}
}

func TestAnEmptyRequestHasALengthAndReachesServersOfEitherKind(t *testing.T) {
	both(t, func(t *testing.T, h2 bool) {
		h, got := watcher()
		w := newWorld(t, h)
		for _, method := range []string{"POST", "PUT", "DELETE"} {
			send(t, w.program(t, h2), method, "https://"+w.host+"/", nil, "Authorization", placeholder)
			if s := <-got; s.Length != 0 || s.Header.Get("Authorization") != secret || s.Header.Get("Content-Length") != "0" && method != "DELETE" {
				t.Errorf("%s: %+v", method, s)
			}
		}
	})
}

func TestAServerThatSpeaksOnlyHTTP2IsReachedWithoutABody(t *testing.T) {
	w := &world{ca: newCA(t), keeper: &keeper{}, journal: &journal{}}
	d := &dropper{headers: make(chan http.Header, 100)}
	config := &tls.Config{Certificates: []tls.Certificate{w.ca.sign(t, &x509.Certificate{DNSNames: []string{"up.example"}})}, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12}
	strict := config.Clone()
	strict.NextProtos = []string{"none"} // crypto/tls lets HTTP/1 through otherwise
	config.GetConfigForClient = func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		if !slices.Contains(h.SupportedProtos, "h2") {
			return strict, nil
		}
		return nil, nil
	}
	w.serve(t, accept(t, func(raw *net.TCPConn) {
		c := tls.Server(raw, config)
		if c.HandshakeContext(context.Background()) == nil {
			d.http2("")(c)
		}
	}))
	res, body := send(t, w.program(t, false), "POST", "https://"+w.host+"/warm", nil, "Authorization", placeholder)
	if res.StatusCode != http.StatusOK {
		t.Errorf("%s %s", res.Status, body)
	}
	if _, outcomes := w.journal.take(t); len(outcomes) != 1 || outcomes[0] != (egress.Outcome{State: egress.Finished, Status: 200}) {
		t.Errorf("%v", outcomes)
	}
}

func TestAnOpBeginsBeforeTheFirstByteAndEndsAsItEnded(t *testing.T) {
	both(t, func(t *testing.T, h2 bool) {
		reached := make(chan struct{}, 10)
		w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
			reached <- struct{}{}
			_, _ = io.Copy(io.Discard, r.Body)
			if r.URL.Path == "/broken" {
				panic(http.ErrAbortHandler)
			}
			rw.WriteHeader(http.StatusTeapot)
		})
		w.journal.begin = func() {
			if len(reached) > 0 {
				t.Error("the request was there before its op")
			}
		}
		c := w.program(t, h2)
		for path, want := range map[string]egress.Outcome{
			"/":       {State: egress.Finished, Status: http.StatusTeapot},
			"/broken": {State: egress.Unknown},
		} {
			for _, method := range []string{"POST", "PUT", "DELETE", "PATCH", "PROPFIND"} {
				res, _ := send(t, c, method, "https://"+w.host+path, strings.NewReader("x"), "Authorization", placeholder)
				<-reached
				if want.State == egress.Unknown && res.StatusCode != http.StatusBadGateway {
					t.Errorf("%s %s: %s", method, path, res.Status)
				}
				if _, outcomes := w.journal.take(t); len(outcomes) != 1 || outcomes[0] != want {
					t.Errorf("%s %s: %v", method, path, outcomes)
				}
			}
		}
		for _, method := range []string{"GET", "HEAD", "OPTIONS"} {
			send(t, c, method, "https://"+w.host+"/", nil, "Authorization", placeholder)
			<-reached
		}
		send(t, c, "POST", "https://"+w.host+"/", strings.NewReader("x"), "Authorization", "mine")
		<-reached
		if begun, _ := w.journal.take(t); len(begun) > 0 {
			t.Errorf("%v", begun)
		}
		const closed = "127.0.0.1:1" // no port that anybody is given
		w = (&world{ca: newCA(t), keeper: &keeper{}, journal: &journal{}}).serve(t, closed)
		if res, _ := send(t, w.program(t, h2), "POST", "https://"+w.host+"/", strings.NewReader("x"), "Authorization", placeholder); res.StatusCode != http.StatusBadGateway {
			t.Error(res.Status)
		}
		if _, outcomes := w.journal.take(t); len(outcomes) != 1 || outcomes[0].State != egress.NotSent {
			t.Errorf("%v", outcomes)
		}
	})
}

func TestWhateverUsesARevokedCredentialEndsWithinASecond(t *testing.T) {
	both(t, func(t *testing.T, h2 bool) {
		for _, kind := range []string{"stream", "stream nobody reads", "upload", "waiting"} {
			var ready sync.WaitGroup
			ready.Add(1)
			started := sync.OnceFunc(ready.Done)
			w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
				started()
				switch kind {
				case "upload":
					_, _ = io.Copy(io.Discard, r.Body)
				case "waiting":
					<-r.Context().Done()
				default:
					for r.Context().Err() == nil {
						_, _ = rw.Write(make([]byte, 1<<10))
						_ = http.NewResponseController(rw).Flush()
						if kind == "stream" {
							time.Sleep(time.Millisecond)
						}
					}
				}
			})
			gone := make(chan struct{})
			g := w.grant(t)
			g.Revoked = gone
			w.keeper.set(nil, g)
			var body io.Reader
			if kind == "upload" {
				body = struct{ io.Reader }{endless{}}
			}
			req, err := http.NewRequestWithContext(t.Context(), "POST", "https://"+w.host+"/", body)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", placeholder)
			ended := make(chan time.Time, 1)
			var since time.Time
			go func() {
				defer func() { ended <- time.Now() }()
				res, err := w.program(t, h2).Do(req)
				if err != nil {
					return
				}
				defer func() { _ = res.Body.Close() }()
				if kind == "stream nobody reads" {
					ready.Wait()
					for len(w.audit.peek()) == 0 {
						time.Sleep(time.Millisecond)
					}
				}
				_, _ = io.Copy(io.Discard, res.Body)
			}()
			ready.Wait()
			time.Sleep(100 * time.Millisecond)
			since = time.Now()
			close(gone)
			l := w.request(t)
			if took := (<-ended).Sub(since); took > time.Second {
				t.Errorf("%s: ended after %v", kind, took)
			}
			if l.Verdict != "revoked" {
				t.Errorf("%s: %+v", kind, l)
			}
			_ = w.stop()
		}
	})
}

func TestASilentUpstreamInsideIsATimeout(t *testing.T) { // E80
	both(t, func(t *testing.T, h2 bool) {
		w := newWorld(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, func(o *egress.Options) { o.IdleTimeout = 200 * time.Millisecond })
		res, body, err := try(t.Context(), w.program(t, h2), "GET", "https://"+w.host+"/", nil, "Authorization", placeholder)
		if err != nil && !errors.Is(err, io.EOF) || err == nil && res.StatusCode != http.StatusGatewayTimeout {
			t.Errorf("%v %s %v", res, body, err)
		}
		if l := w.request(t); l.Verdict != "timeout" {
			t.Errorf("%+v", l)
		}
	})
}

// An answer may come before the body of its request was read. The connection then is good
// for another request, or the program is told that it is not.
func TestAnAnswerThatComesEarlyDoesNotBreakTheNextRequest(t *testing.T) {
	both(t, func(t *testing.T, h2 bool) {
		w := newWorld(t, func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusAccepted) })
		c := w.program(t, h2)
		for i := range 100 {
			var body io.Reader = strings.NewReader(strings.Repeat("x", i*1000))
			if i%2 == 1 {
				body = struct{ io.Reader }{body}
			}
			if res, text := send(t, c, "POST", "https://"+w.host+"/", body, "Authorization", placeholder); res.StatusCode != http.StatusAccepted {
				t.Errorf("%d: %s %s", i, res.Status, text)
			}
		}
	})
}
