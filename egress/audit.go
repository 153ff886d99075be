package egress

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// maxMethod is how much of a method the audit keeps.
const maxMethod = 32

const (
	// maxPath is how much of a path the audit keeps.
	maxPath = 512
	// maxNotes is how many credentials the audit tells about that were not attached.
	maxNotes = 4
)

// record is what the audit says of one request. It holds no header and no query, and a
// path only of requests that could have been given a credential.
type record struct {
	method  string
	to      target
	path    string
	verdict string
	err     error
	start   time.Time

	credentials []string // that were attached
	notes       []string // why others were not

	sent, received atomic.Int64 // payload bytes, from the sandbox and to it
}

func newRecord(method string) *record {
	return &record{method: method[:min(len(method), maxMethod)], verdict: verdictAllowed, start: time.Now()}
}

// used says that a credential was attached.
func (r *record) used(g *Grant) {
	if !slices.Contains(r.credentials, g.Credential) {
		r.credentials = append(r.credentials, g.Credential)
	}
}

// note says why a credential was not attached.
func (r *record) note(g *Grant, why string) {
	if len(r.notes) < maxNotes {
		r.notes = append(r.notes, g.Credential+": "+why)
	}
}

func (r *record) write(ctx context.Context, log *slog.Logger) {
	attrs := []slog.Attr{
		slog.String("method", r.method),
		slog.String("host", r.to.host),
		slog.Int("port", int(r.to.port)),
		slog.String("verdict", r.verdict),
		slog.Int64("sent", r.sent.Load()),
		slog.Int64("received", r.received.Load()),
		slog.Duration("duration", time.Since(r.start)),
	}
	if r.path != "" {
		attrs = append(attrs, slog.String("path", r.path))
	}
	if len(r.credentials) > 0 {
		attrs = append(attrs, slog.String("credential", strings.Join(r.credentials, " ")))
	}
	if len(r.notes) > 0 {
		attrs = append(attrs, slog.String("not_attached", strings.Join(r.notes, "; ")))
	}
	if r.err != nil {
		attrs = append(attrs, slog.String("error", r.err.Error()))
	}
	log.LogAttrs(ctx, slog.LevelInfo, "egress request", attrs...)
}

// metered is a body whose bytes are counted, and are signs of life.
type metered struct {
	io.ReadCloser
	count *atomic.Int64
	alive func()
}

func (m *metered) Read(b []byte) (int, error) {
	n, err := m.ReadCloser.Read(b)
	if n > 0 {
		m.count.Add(int64(n))
		m.alive()
	}
	return n, err
}
