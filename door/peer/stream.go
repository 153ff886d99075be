package peer

import (
	"context"
	"net/http"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/feed"
)

// streamer follows the sessions that are loaded on this server.
type streamer interface {
	FollowHere(id dormouse.SessionID, after uint64) (*feed.Follower, error)
}

// follow streams a session to a server whose clients follow it there: a line of
// JSON each, until the session is no longer loaded here.
func (s *Server) follow(a *answerer, r *http.Request, body []byte) error {
	var req follow
	if err := decode(body, &req); err != nil {
		return err
	}
	f, err := s.Sessions.FollowHere(req.Session, req.After)
	if err != nil {
		return err
	}
	defer f.Close()
	control := http.NewResponseController(a.w)
	_ = control.SetReadDeadline(time.Time{}) // it lasts as long as the follower
	out := &lines{w: a.begin(http.StatusOK), control: control}
	for out.write(line{}); out.err == nil && r.Context().Err() == nil; {
		ctx, cancel := context.WithTimeout(r.Context(), heartbeat)
		items, err := f.Next(ctx)
		silent := ctx.Err() != nil
		cancel()
		switch {
		case err == nil:
			out.relay(items)
		case silent:
			out.write(line{})
		default:
			reply := replyTo(err)
			out.write(line{End: &refusal{Type: reply.Type, Message: reply.Message}})
			return out.finish()
		}
	}
	return nil
}

// lines writes lines to another server. One that does not read in time ends its
// own stream.
type lines struct {
	w       *sealer
	control *http.ResponseController
	err     error // the first failure; nothing is written after it
}

// relay writes items. Of an event that is too large for a line it writes only that it
// exists. A delta that is too large is dropped, which may happen to any delta.
func (l *lines) relay(items []*feed.Item) {
	var b []byte
	for _, i := range items {
		raw := i.JSON()
		switch {
		case i.Delta != nil && len(raw) < maxEvent:
			b = append(append(append(b, `{"delta":`...), raw...), "}\n"...)
		case i.Delta != nil:
		case len(raw) < maxEvent:
			b = append(append(append(b, `{"event":`...), raw...), "}\n"...)
		default:
			more, err := encode(line{Relayed: feed.Relayed{Upto: i.Event.Seq}})
			if err != nil {
				l.err = err
				return
			}
			b = append(b, more...)
		}
	}
	l.put(b)
}

func (l *lines) write(v line) {
	b, err := encode(v)
	if err != nil {
		l.err = err
		return
	}
	l.put(b)
}

func (l *lines) put(b []byte) {
	if l.err != nil || len(b) == 0 {
		return
	}
	_ = l.control.SetWriteDeadline(time.Now().Add(heartbeatTimeout))
	if _, l.err = l.w.Write(b); l.err == nil {
		l.err = l.control.Flush()
	}
}

// finish sends the end frame: nothing was cut off.
func (l *lines) finish() error {
	if l.err == nil {
		l.err = l.w.Close()
	}
	return l.err
}
