package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

// follower reads a session's events over a connection of its own, without the HTTP client
// of the other measurements. It looks for two marks in the bytes and at nothing else, so
// that the reader adds little to the measured time of the writer.
type follower struct {
	conn net.Conn
	end  []byte
	buf  []byte
	kept int // bytes at the front of buf that were looked at and may begin a mark
	full int // bytes behind them that were not looked at yet
}

// The marks: how the frame of every event begins, and the frame of a session
// that has come to rest. No payload holds a line break, so that neither can
// occur inside one.
const (
	eachEvent = "\nid: "
	atRest    = "\nevent: session.status_idle\n"
)

// follow begins to read a stream, and returns once the stream has begun.
func (c *remote) follow(ctx context.Context, path, end string, size int) (*follower, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", c.address)
	if err != nil {
		return nil, err
	}
	f := &follower{conn: conn, end: []byte(end), buf: make([]byte, size)}
	_, err = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n\r\n", path, c.address, c.token)
	if err == nil {
		err = f.greet()
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return f, nil
}

// greet reads the head of the answer and the greeting of the stream.
func (f *follower) greet() error {
	_ = f.conn.SetReadDeadline(time.Now().Add(patience))
	for !bytes.Contains(f.buf[:f.full], []byte(": following\n\n")) {
		n, err := f.conn.Read(f.buf[f.full:])
		f.full += n
		if err == nil && f.full == len(f.buf) {
			err = errors.New("no greeting")
		}
		if err != nil {
			return fmt.Errorf("follow: %w after %q", err, f.buf[:min(f.full, 200)])
		}
	}
	return f.conn.SetReadDeadline(time.Time{})
}

// read waits for bytes, counts the events that begin in them and reports
// whether the end is among them.
func (f *follower) read() (events int, ended bool, err error) {
	n := f.full
	if f.full = 0; n == 0 {
		n, err = f.conn.Read(f.buf[f.kept:])
	}
	old, seen := f.buf[:f.kept], f.buf[:f.kept+n]
	events = bytes.Count(seen, []byte(eachEvent)) - bytes.Count(old, []byte(eachEvent))
	ended = bytes.Contains(seen, f.end)
	keep := min(len(seen), len(f.end)-1)
	f.kept = copy(f.buf, seen[len(seen)-keep:])
	return events, ended, err
}

// rest waits for the end.
func (f *follower) rest() error {
	_ = f.conn.SetReadDeadline(time.Now().Add(patience))
	for {
		if _, ended, err := f.read(); ended || err != nil {
			return err
		}
	}
}

func (f *follower) close() { _ = f.conn.Close() }
