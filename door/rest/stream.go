package rest

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"sync"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/door"
	"github.com/dormouse-run/dormouse/session/feed"
)

// streamer follows sessions.
type streamer interface {
	Follow(ctx context.Context, id dormouse.SessionID, after uint64) (*feed.Follower, error)
}

var (
	errHeartbeat = errors.New("heartbeat is due")
	errDeleted   = errors.New("the session was deleted")
)

// follow streams events until the client leaves, falls behind or the server
// stops. A client that is cut off reconnects with the last id it saw.
func (s *Server) follow(c call, id dormouse.SessionID, v view) error {
	ctx := c.R.Context() // without an end: a stream lasts as long as its client
	f, err := s.Sessions.Follow(ctx, id, v.after)
	if err != nil {
		return err
	}
	defer f.Close()
	s.followers.Add(1)
	defer s.followers.Add(-1)

	c.Status, c.Stream = http.StatusOK, true
	out := stream{door.NewStream(c.W, s.WriteTimeout)}
	out.BeginEvents()
	out.Send(": following\n\n")
	for out.Err == nil && ctx.Err() == nil {
		beat, stop := context.WithTimeoutCause(ctx, s.KeepAlive, errHeartbeat)
		err := pump(beat, f, out, v)
		silent := beat.Err() != nil
		stop()
		switch {
		case out.Err != nil || ctx.Err() != nil:
		case errors.Is(err, errDeleted):
			return nil
		case silent:
			// A follower that missed the deletion cannot read it from the log.
			if _, err := s.Sessions.Row(ctx, id); errors.Is(err, dormouse.ErrNotFound) {
				return s.endStream(out, f.Cursor(), err)
			}
			out.Send(": alive\n\n")
		default:
			return s.endStream(out, f.Cursor(), err)
		}
	}
	s.Logger.DebugContext(ctx, "follower left", "request", c.ID, "session", id, "cursor", f.Cursor(), "error", out.Err)
	return nil
}

// endStream sends why a stream ends, and the cursor to resume from.
func (s *Server) endStream(out stream, cursor uint64, err error) error {
	event, failed := "error", err
	switch {
	case errors.Is(err, dormouse.ErrBehind):
		event, failed = "behind", nil
	case errors.Is(err, dormouse.ErrClosing):
		event, failed = "closing", nil
	case errors.Is(err, dormouse.ErrNotFound):
		failed = nil
	}
	end := struct {
		Cursor  uint64 `json:"cursor"`
		Type    string `json:"type,omitempty"`
		Message string `json:"message,omitempty"`
	}{Cursor: cursor}
	if event == "error" {
		reply := door.ReplyTo(err)
		end.Type, end.Message = reply.Type, reply.Message
	}
	b, err := json.Marshal(end)
	if err != nil {
		return err
	}
	out.Send("event: " + event + "\ndata: " + string(b) + "\n\n")
	return failed
}

// pump copies from the follower to the client until something ends it.
func pump(ctx context.Context, f *feed.Follower, out stream, v view) error {
	for {
		items, err := f.Next(ctx)
		if err != nil {
			return err
		}
		end := slices.IndexFunc(items, func(i *feed.Item) bool { return i.Event.Type == dormouse.SessionDeleted })
		if end >= 0 {
			items = items[:end+1]
		}
		switch out.write(items, v); {
		case out.Err != nil:
			return out.Err
		case end >= 0:
			return errDeleted
		}
	}
}

// bufferSize is how many bytes are gathered before they are written.
const bufferSize = door.BufferSize

var buffers = sync.Pool{New: func() any {
	b := make([]byte, 0, bufferSize+bufferSize/4)
	return &b
}}

// stream writes events as server-sent ones: a batch at a time, so that a busy
// session costs its followers few system calls.
type stream struct{ *door.Stream }

func (s stream) write(items []*feed.Item, v view) {
	buffer, _ := buffers.Get().(*[]byte)
	b := (*buffer)[:0]
	wrote := false
	for _, i := range items {
		if i.Delta != nil && !v.deltas || i.Delta == nil && !v.shows(i.Event.Type) {
			continue
		}
		wrote = true
		if i.Delta != nil {
			b = append(b, "event: delta\ndata: "...)
		} else {
			b = append(b, "id: "...)
			b = strconv.AppendUint(b, i.Event.Seq, 10)
			b = append(b, "\nevent: "...)
			b = append(b, i.Event.Type...)
			b = append(b, "\ndata: "...)
		}
		if raw := i.JSON(); len(raw) <= bufferSize/4 {
			b = append(b, raw...)
		} else { // too large to be worth a copy
			s.Put(b)
			s.Put(raw)
			b = b[:0]
		}
		if b = append(b, "\n\n"...); len(b) >= bufferSize {
			s.Put(b)
			b = b[:0]
		}
		if s.Err != nil {
			break
		}
	}
	s.Put(b)
	if wrote {
		s.Flush()
	}
	*buffer = b[:0]
	buffers.Put(buffer)
}
