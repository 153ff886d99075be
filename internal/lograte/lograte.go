// Package lograte bounds what untrusted clients can write to a log. It is a slog.Handler:
//
//	strangers := slog.New(lograte.New(log.Handler(), lograte.Options{}))
//	strangers.Warn("runner refused", "error", err)
//
// Of each message, at its level, the first few of an interval are written and the rest
// counted; when the interval is over one line says how many were left out. Values are
// bounded too, whatever wrote them; escaping is done by the handler behind.
package lograte

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// Options says how much is written. Zero means the default.
type Options struct {
	// Burst is how many lines of one message are written in an interval: 10.
	Burst int
	// Every is the interval: 10 seconds.
	Every time.Duration
	// MaxValue bounds a value in bytes: 512.
	MaxValue int
	// Together counts all messages of a level as one, for loggers whose messages are not
	// constant.
	Together bool
}

// LeftOut is the message of the line that says how many were left out.
const LeftOut = "log lines left out"

// maxKinds bounds how many different messages are counted. Messages are constants, so it is
// reached only by mistake.
const maxKinds = 256

// Handler is a slog.Handler in front of another.
type Handler struct {
	next slog.Handler
	*shared
}

// shared is what all handlers made from one share.
type shared struct {
	opts Options

	mu    sync.Mutex
	kinds map[kind]*count // guarded by mu
}

// kind identifies a message.
type kind struct {
	level   slog.Level
	message string
}

// count is what became of one message in this interval.
type count struct {
	written int
	left    int
	next    slog.Handler // of the last that was left out
	timer   *time.Timer
}

// New returns a handler in front of next, with an allowance of its own.
func New(next slog.Handler, o Options) *Handler {
	o.Burst = cmp.Or(o.Burst, 10)
	o.Every = cmp.Or(o.Every, 10*time.Second)
	o.MaxValue = cmp.Or(o.MaxValue, 512)
	return &Handler{next, &shared{opts: o, kinds: make(map[kind]*count)}}
}

// Enabled asks the handler behind.
func (h *Handler) Enabled(ctx context.Context, l slog.Level) bool { return h.next.Enabled(ctx, l) }

// WithAttrs returns a handler that shares the allowance.
func (h *Handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	bounded := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		bounded[i] = Bound(a, h.opts.MaxValue)
	}
	return &Handler{h.next.WithAttrs(bounded), h.shared}
}

// WithGroup returns a handler that shares the allowance.
func (h *Handler) WithGroup(name string) slog.Handler {
	return &Handler{h.next.WithGroup(name), h.shared}
}

// Handle writes a line, or counts it.
func (h *Handler) Handle(ctx context.Context, r slog.Record) error {
	k := kind{r.Level, r.Message}
	if h.opts.Together {
		k.message = ""
	}
	if !h.allow(k, h.next) {
		return nil
	}
	bounded := slog.NewRecord(r.Time, r.Level, Shorten(r.Message, h.opts.MaxValue), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		bounded.AddAttrs(Bound(a, h.opts.MaxValue))
		return true
	})
	return h.next.Handle(ctx, bounded)
}

func (s *shared) allow(k kind, next slog.Handler) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kinds[k] == nil && len(s.kinds) >= maxKinds {
		k.message = "" // all the others together
	}
	c := s.kinds[k]
	if c == nil {
		c = new(count)
		c.timer = time.AfterFunc(s.opts.Every, func() { s.end(k, c) })
		s.kinds[k] = c
	}
	if c.written < s.opts.Burst {
		c.written++
		return true
	}
	c.left++
	c.next = next
	return false
}

// end ends an interval.
func (s *shared) end(k kind, c *count) {
	s.mu.Lock()
	if s.kinds[k] == c {
		delete(s.kinds, k)
	}
	left, next := c.left, c.next
	c.left = 0
	s.mu.Unlock()
	if left == 0 {
		return
	}
	r := slog.NewRecord(time.Now(), k.level, LeftOut, 0)
	if k.message != "" {
		r.AddAttrs(slog.String("message", k.message))
	}
	r.AddAttrs(slog.Int("count", left), slog.Duration("within", s.opts.Every))
	_ = next.Handle(context.Background(), r) //nolint:forbidigo // the line is of many requests
}

// Flush ends all intervals now, so that nothing that was left out goes unsaid.
func (h *Handler) Flush() {
	h.mu.Lock()
	all := make(map[kind]*count, len(h.kinds))
	for k, c := range h.kinds {
		c.timer.Stop()
		all[k] = c
	}
	h.mu.Unlock()
	for k, c := range all {
		h.end(k, c)
	}
}

// Bound bounds the value of an attribute that is a text, or becomes one.
func Bound(a slog.Attr, most int) slog.Attr {
	v := a.Value.Resolve()
	switch v.Kind() { //nolint:exhaustive // the others are short
	case slog.KindString:
		return slog.String(a.Key, Shorten(v.String(), most))
	case slog.KindAny:
		if err, ok := v.Any().(error); ok {
			return slog.String(a.Key, Shorten(err.Error(), most))
		}
		return slog.String(a.Key, Shorten(fmt.Sprint(v.Any()), most))
	case slog.KindGroup:
		attrs := make([]any, 0, len(v.Group()))
		for _, in := range v.Group() {
			attrs = append(attrs, Bound(in, most))
		}
		return slog.Group(a.Key, attrs...)
	}
	return slog.Attr{Key: a.Key, Value: v}
}

// Shorten keeps the beginning of a text, and says how much there was.
func Shorten(s string, most int) string {
	if len(s) <= most {
		return s
	}
	cut := s[:most]
	for i := 0; i < utf8.UTFMax && len(cut) > 0 && !utf8.ValidString(cut[max(0, len(cut)-utf8.UTFMax):]); i++ {
		cut = cut[:len(cut)-1]
	}
	return fmt.Sprintf("%s… (%d bytes)", strings.ToValidUTF8(cut, "\uFFFD"), len(s))
}
