package egress

import (
	"context"
	"io"
	"log/slog"
	"sync/atomic"
	"time"
)

// maxMethod is how much of a method the audit keeps.
const maxMethod = 32

// record is what the audit says of one request. It holds no header, no path and
// no query.
type record struct {
	method  string
	to      target
	verdict string
	err     error
	start   time.Time

	sent, received atomic.Int64 // payload bytes, from the sandbox and to it
}

func newRecord(method string) *record {
	return &record{method: method[:min(len(method), maxMethod)], verdict: verdictAllowed, start: time.Now()}
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
