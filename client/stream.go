package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/sse"
)

// Stream is a single connection that follows a session. It returns what the server sends and
// ends when the connection breaks; Follow reconnects and yields each event once.
type Stream struct {
	cause   func() error // the cause of the connection's context, once that is cancelled
	in      *sse.Reader
	body    io.Closer
	cancel  context.CancelCauseFunc
	silence time.Duration
	// silent cancels the connection. It runs only while OpenStream or Next waits for the
	// server: a caller that is slow must not look like a server that is silent.
	silent *time.Timer
}

// maxEvent is the largest event that is accepted, in bytes.
const maxEvent = 64 << 20

var (
	errSilent = errors.New("the server fell silent")
	// ErrGarbled means that a response is not a stream of events, that a stream cannot be
	// decoded, or that the id or type of a frame differs from that of the event in it.
	ErrGarbled = errors.New("understand event")
)

// OpenStream opens a single connection that follows a session. It lasts until ctx ends, Close
// is called or Next returns an error.
func (c *Client) OpenStream(ctx context.Context, id dormouse.SessionID, o FollowOptions) (*Stream, error) {
	silence := o.Silence
	if silence == 0 {
		silence = time.Minute
	}
	cursor := strconv.FormatUint(o.After, 10)
	q := query("follow", "true", "after", cursor, "deltas", flag(o.Deltas), "all", flag(o.All))
	ctx, cancel := context.WithCancelCause(ctx)
	silent := time.AfterFunc(silence, func() { cancel(errSilent) })
	res, err := c.do(ctx, http.MethodGet, of(id, "events")+"?"+q.Encode(), nil, http.Header{ //nolint:bodyclose // the stream closes it
		"Accept": {"text/event-stream"}, "Last-Event-Id": {cursor},
	})
	silent.Stop()
	if err != nil {
		cancel(nil)
		return nil, err
	}
	s := &Stream{
		cause: func() error { return context.Cause(ctx) }, body: res.Body, cancel: cancel, silence: silence, silent: silent,
		in: sse.NewReader(&activityReader{res.Body, func() { silent.Reset(silence) }}, maxEvent),
	}
	if err := checkStream(res); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// checkStream refuses a successful response that is not a stream of events, such as the page
// of a proxy. Read as a stream it would look like a connection that broke, and a follower
// would reconnect for ever.
func checkStream(res *http.Response) error {
	kind, _, err := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if res.StatusCode != http.StatusOK || err != nil || kind != "text/event-stream" {
		return fmt.Errorf("%w: the server answered %s with content type %q, not with a stream", ErrGarbled, res.Status, res.Header.Get("Content-Type"))
	}
	return nil
}

// activityReader calls active after every read.
type activityReader struct {
	from   io.Reader
	active func()
}

func (r *activityReader) Read(b []byte) (int, error) {
	n, err := r.from.Read(b)
	r.active()
	return n, err
}

// Next waits for the next event or delta.
func (s *Stream) Next() (Event, error) {
	s.silent.Reset(s.silence)
	defer s.silent.Stop()
	for {
		f, err := s.in.Next()
		if err != nil {
			if why := s.cause(); why != nil {
				err = why
			}
			return Event{}, fmt.Errorf("follow: %w", err)
		}
		switch f.Event {
		case "": // a heartbeat
		case "delta":
			e := Event{Delta: new(dormouse.Delta), Raw: f.Data}
			if err := json.Unmarshal(f.Data, e.Delta); err != nil {
				return Event{}, fmt.Errorf("%w: a delta: %w", ErrGarbled, err)
			}
			return e, nil
		case "behind", "closing", "error":
			return Event{}, ended(f)
		default:
			return eventOf(f)
		}
	}
}

// ended returns the error that the last frame of a stream stands for.
func ended(f sse.Frame) error {
	var why struct {
		Code    string `json:"type"`
		Message string `json:"message"`
	}
	_ = json.Unmarshal(f.Data, &why) // the stream has ended, even if the reason cannot be read
	var err error = &StreamError{Code: why.Code, Message: why.Message}
	switch f.Event {
	case "behind":
		err = dormouse.ErrBehind
	case "closing":
		err = dormouse.ErrClosing
	}
	return fmt.Errorf("the server ended the stream: %w", err)
}

// eventOf decodes an event, and checks that the id and type of its frame are its own.
func eventOf(f sse.Frame) (e Event, err error) {
	if err := json.Unmarshal(f.Data, &e); err != nil {
		return Event{}, fmt.Errorf("%w: %w", ErrGarbled, err)
	}
	if f.ID != strconv.FormatUint(e.Seq, 10) || f.Event != string(e.Type) || e.Seq == 0 {
		return Event{}, fmt.Errorf("%w: event %d %s came as id %s, event %s", ErrGarbled, e.Seq, e.Type, f.ID, f.Event)
	}
	return e, nil
}

// Close ends the connection.
func (s *Stream) Close() {
	s.silent.Stop()
	s.cancel(nil)
	_ = s.body.Close()
}
