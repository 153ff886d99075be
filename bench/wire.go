package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
)

// wire is one connection that stays open, without the HTTP client of the other
// measurements. It knows as much of HTTP as our answers have, so that the client adds
// little to the measured time of the server.
type wire struct {
	conn net.Conn
	in   *bufio.Reader
	out  bytes.Buffer
	body []byte
	head string // of every request
}

func (c *remote) dial(ctx context.Context) (*wire, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", c.address)
	if err != nil {
		return nil, err
	}
	return &wire{
		conn: conn, in: bufio.NewReader(conn),
		head: "Host: " + c.address + "\r\nAuthorization: Bearer " + c.token + "\r\nContent-Type: application/json\r\nContent-Length: ",
	}, nil
}

// ask sends a request and reads the answer, which is good until the next.
func (w *wire) ask(method, path, body string) (status int, answer []byte, err error) {
	w.out.Reset()
	fmt.Fprintf(&w.out, "%s %s HTTP/1.1\r\n%s%d\r\n\r\n%s", method, path, w.head, len(body), body)
	if _, err := w.conn.Write(w.out.Bytes()); err != nil {
		return 0, nil, err
	}
	line, err := w.in.ReadSlice('\n')
	if err != nil {
		return 0, nil, err
	}
	if _, err := fmt.Sscanf(string(line), "HTTP/1.1 %d", &status); err != nil {
		return 0, nil, fmt.Errorf("read %q: %w", line, err)
	}
	length := -1
	for {
		line, err := w.in.ReadSlice('\n')
		if err != nil {
			return 0, nil, err
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			break
		}
		if value, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			if length, err = strconv.Atoi(string(value)); err != nil {
				return 0, nil, err
			}
		}
	}
	if length < 0 {
		return 0, nil, fmt.Errorf("an answer to %s has no length", path)
	}
	if cap(w.body) < length {
		w.body = make([]byte, length)
	}
	w.body = w.body[:length]
	_, err = io.ReadFull(w.in, w.body)
	return status, w.body, err
}

func (w *wire) close() { _ = w.conn.Close() }
