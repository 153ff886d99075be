package s3_test

import (
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/dormouse-run/dormouse/blob/s3"
)

// proxy stands between a store and the server and does not always tell the truth.
type proxy struct {
	t    *testing.T
	next http.Handler

	mu    sync.Mutex
	lie   lie      // guarded by mu
	asked []string // guarded by mu: what was asked for since the lie began
}

// lie answers a request, by next if it likes to. It is told how often a request
// with the same name came before.
type lie func(w http.ResponseWriter, r *http.Request, name string, before int, next http.Handler)

// newProxy changes options to go through a proxy.
func newProxy(t *testing.T, o *s3.Options) *proxy {
	t.Helper()
	to, err := url.Parse(o.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	transport := new(http.Transport)
	p := &proxy{t: t, next: &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.Host = r.In.Host // it is signed
		},
		Transport:    transport,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}}
	h := httptest.NewServer(p)
	t.Cleanup(func() {
		h.CloseClientConnections()
		h.Close()
		transport.CloseIdleConnections()
	})
	o.Endpoint = h.URL
	return p
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := called(r)
	p.mu.Lock()
	lie, before := p.lie, 0
	for _, asked := range p.asked {
		if asked == name {
			before++
		}
	}
	p.asked = append(p.asked, name)
	p.mu.Unlock()
	if lie == nil {
		lie = truth
	}
	lie(w, r, name, before, p.next)
}

// begin lies from now on.
func (p *proxy) begin(l lie) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lie, p.asked = l, nil
}

// count returns how often was asked for name.
func (p *proxy) count(name string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, asked := range p.asked {
		if asked == name {
			n++
		}
	}
	return n
}

// called names a request: its method and the kind of object, or what it does.
func called(r *http.Request) string {
	q := r.URL.Query()
	name := r.Method
	switch {
	case q.Has("list-type"):
		return "LIST " + kind(q.Get("prefix"))
	case q.Has("partNumber"):
		return "PART " + q.Get("partNumber")
	case q.Has("uploads"):
		name = "UPLOADS"
		if r.Method == http.MethodPost {
			name = "BEGIN"
		}
	case q.Has("uploadId"):
		name = map[string]string{http.MethodPost: "COMPLETE", http.MethodDelete: "ABORT"}[r.Method]
	}
	return name + " " + kind(r.URL.Path)
}

func kind(key string) string {
	for _, kind := range []string{"sha256", "put", "collecting"} {
		if strings.Contains(key, "/"+kind+"/") {
			return kind
		}
	}
	return "bucket"
}

func truth(w http.ResponseWriter, r *http.Request, _ string, _ int, next http.Handler) {
	next.ServeHTTP(w, r)
}

// on lies about one kind of request.
func on(name string, l lie) lie {
	return func(w http.ResponseWriter, r *http.Request, asked string, before int, next http.Handler) {
		if asked == name {
			l(w, r, asked, before, next)
			return
		}
		next.ServeHTTP(w, r)
	}
}

// first lies so often about each kind of request.
func first(n int, l lie) lie {
	return func(w http.ResponseWriter, r *http.Request, asked string, before int, next http.Handler) {
		if before < n {
			l(w, r, asked, before, next)
			return
		}
		next.ServeHTTP(w, r)
	}
}

// says answers with a status and a body.
func says(status int, body string) lie {
	return func(w http.ResponseWriter, r *http.Request, _ string, _ int, _ http.Handler) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("ETag", `"d41d8cd98f00b204e9800998ecf8427e"`)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// refuses answers as S3 servers do that will not.
func refuses(status int, code string) lie {
	return says(status, "<Error><Code>"+code+"</Code><Message>no</Message></Error>")
}

// resets takes some of what is sent and breaks the connection.
func resets(w http.ResponseWriter, r *http.Request, _ string, _ int, _ http.Handler) {
	_, _ = io.CopyN(io.Discard, r.Body, 3)
	reset(w)
}

func reset(w http.ResponseWriter) {
	c, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

// hangsUp says nothing and leaves.
func hangsUp(w http.ResponseWriter, r *http.Request, _ string, _ int, _ http.Handler) {
	_, _ = io.Copy(io.Discard, r.Body)
	panic(http.ErrAbortHandler)
}

// hangs sends no response until the client has disconnected.
func hangs(_ http.ResponseWriter, r *http.Request, _ string, _ int, _ http.Handler) {
	_, _ = io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
}

// changes lets the server answer and hands its answer to f.
func changes(f func(h http.Header, body []byte) []byte) lie {
	return func(w http.ResponseWriter, r *http.Request, _ string, _ int, next http.Handler) {
		answer := httptest.NewRecorder()
		next.ServeHTTP(answer, r)
		body := f(answer.Header(), answer.Body.Bytes())
		maps.Copy(w.Header(), answer.Header())
		w.WriteHeader(answer.Code)
		_, _ = w.Write(body)
	}
}

// cuts lets the server answer, and the connection break after so many bytes.
func cuts(after int) lie {
	return func(w http.ResponseWriter, r *http.Request, _ string, _ int, next http.Handler) {
		answer := httptest.NewRecorder()
		next.ServeHTTP(answer, r)
		body := answer.Body.Bytes()
		maps.Copy(w.Header(), answer.Header())
		w.WriteHeader(answer.Code)
		_, _ = w.Write(body[:min(after, len(body))])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
}
