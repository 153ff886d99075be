package rest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/feed"
)

// eventReader reads pages of the log.
type eventReader interface {
	Events(ctx context.Context, id dormouse.SessionID, after uint64, limit int) ([]dormouse.Event, error)
}

// view is which events of a session are wanted.
type view struct {
	after    uint64
	limit    int
	audience dormouse.Audience
	deltas   bool
	follow   bool
}

func (v view) shows(t dormouse.EventType) bool { return t.Audience() <= v.audience }

func (c call) view() (v view, err error) {
	q, err := c.query("after", "limit", "all", "follow", "deltas")
	if err != nil {
		return v, err
	}
	const usual, most = 100, 1000
	if v.limit, err = limit(q, usual, most); err != nil {
		return v, err
	}
	if q.Has("after") {
		if v.after, err = cursor(`parameter "after"`, q.Get("after")); err != nil {
			return v, err
		}
	}
	// A browser that reconnects repeats its URL and adds the newer cursor.
	if last := c.R.Header.Get("Last-Event-ID"); last != "" {
		if v.after, err = cursor("Last-Event-ID", last); err != nil {
			return v, err
		}
	}
	all, err := flag(q, "all")
	if err != nil {
		return v, err
	}
	v.audience = dormouse.ForPeople
	if all {
		v.audience = dormouse.ForCore
	}
	if v.deltas, err = flag(q, "deltas"); err != nil {
		return v, err
	}
	if v.follow, err = flag(q, "follow"); err != nil {
		return v, err
	}
	v.follow = v.follow || strings.Contains(c.R.Header.Get("Accept"), "text/event-stream")
	return v, nil
}

// events answers with a page of history, or follows.
func (s *Server) events(c call) error {
	v, err := c.view()
	if err != nil {
		return err
	}
	ctx, cancel := c.Context()
	defer cancel()
	row, err := s.row(ctx, c)
	if err != nil {
		return err
	}
	if v.after > row.Seq {
		return fmt.Errorf("cursor %d is beyond the log, which ends at %d: %w", v.after, row.Seq, dormouse.ErrInvalid)
	}
	if v.follow {
		return s.follow(c, row.Session, v)
	}
	answer := struct {
		Events []json.RawMessage `json:"events"`
		// Next is the last event that was looked at, shown or not.
		Next uint64 `json:"next"`
		More bool   `json:"more"`
	}{Events: []json.RawMessage{}, Next: v.after}

	const atOnce, enough = 100, 16 << 20 // events read together; bytes in one page
	for size := 0; len(answer.Events) < v.limit && size < enough && answer.Next < row.Seq; {
		events, err := s.Sessions.Events(ctx, row.Session, answer.Next, atOnce)
		if err != nil {
			return err
		}
		if len(events) == 0 {
			break
		}
		for _, e := range events {
			if len(answer.Events) == v.limit || size >= enough {
				break
			}
			answer.Next = e.Seq
			if v.shows(e.Type) {
				b := (&feed.Item{Event: e}).JSON()
				answer.Events, size = append(answer.Events, b), size+len(b)
			}
		}
	}
	answer.More = answer.Next < row.Seq
	return c.Answer(http.StatusOK, answer)
}
