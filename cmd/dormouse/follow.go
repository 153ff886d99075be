package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"
)

// following is what a follower wants to see.
type following struct {
	after  uint64
	deltas bool
	all    bool
}

// frame is one server-sent event.
type frame struct {
	Seq   uint64 // 0 for deltas and what is about the stream itself
	Event string
	Data  []byte
}

// follow gives each event to see once, in order, across any number of broken
// connections, until see is done or the server refuses.
func follow(cmd *cobra.Command, session string, o following, see func(frame) (done bool, err error)) error {
	const first, longest = 100 * time.Millisecond, 3 * time.Second
	wait := first
	for {
		before := o.after
		done, err := followOnce(cmd.Context(), cmd, session, &o, see)
		var r *refusal
		switch {
		case done || cmd.Context().Err() != nil:
			return err
		case errors.As(err, &r) && r.Status < http.StatusInternalServerError:
			return err
		}
		if o.after != before {
			wait = first
		}
		select {
		case <-cmd.Context().Done():
			return context.Cause(cmd.Context())
		case <-time.After(wait):
		}
		wait = min(2*wait, longest)
	}
}

// followOnce reads one connection to its end. Only an error of see, which comes
// with done, is worth stopping for.
func followOnce(ctx context.Context, cmd *cobra.Command, session string, o *following, see func(frame) (bool, error)) (done bool, err error) {
	c, err := connect(cmd) // anew: a server that restarted may listen elsewhere
	if err != nil {
		return false, err
	}
	q := url.Values{"follow": {"true"}, "after": {strconv.FormatUint(o.after, 10)}}
	if o.deltas {
		q.Set("deltas", "true")
	}
	if o.all {
		q.Set("all", "true")
	}
	// The server sends a sign of life every 15 s; a line that is silent for long
	// is dead.
	const silence = time.Minute
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watch := time.AfterFunc(silence, func() { cancel(errors.New("the server fell silent")) })
	defer watch.Stop()
	res, err := c.send(ctx, http.MethodGet, sessionPath(session, "events")+"?"+q.Encode(), nil)
	if err != nil {
		return false, err
	}
	defer func() { _ = res.Body.Close() }()
	r := bufio.NewReaderSize(res.Body, 64<<10)
	for {
		f, err := readFrame(r, func() { watch.Reset(silence) })
		if err != nil {
			return false, err
		}
		switch f.Event {
		case "behind", "closing", "error":
			return false, fmt.Errorf("the server ended the stream: %s", f.Event)
		}
		if f.Seq > 0 {
			if f.Seq <= o.after {
				continue
			}
			o.after = f.Seq
		}
		if done, err := see(f); done || err != nil {
			return true, err
		}
	}
}

// readFrame reads up to the next frame; heard is called for every line.
func readFrame(r *bufio.Reader, heard func()) (frame, error) {
	var f frame
	for {
		line, err := readLine(r)
		if err != nil {
			return frame{}, err
		}
		heard()
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "": // a comment, or the end of a frame
			if len(line) == 0 && f.Event != "" {
				return f, nil
			}
		case "id":
			if f.Seq, err = strconv.ParseUint(string(value), 10, 64); err != nil {
				return frame{}, fmt.Errorf("read stream: %w", err)
			}
		case "event":
			f.Event = string(value)
		case "data":
			f.Data = append(f.Data, value...)
		}
	}
}

// readLine reads one line of at most what one event can be.
func readLine(r *bufio.Reader) ([]byte, error) {
	const most = 64 << 20
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case err == nil:
			return bytes.TrimRight(line, "\r\n"), nil
		case !errors.Is(err, bufio.ErrBufferFull):
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		case len(line) > most:
			return nil, errors.New("read stream: an event is too long")
		}
	}
}
