package egress

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"
)

// maxHello bounds what is read to find the name in a ClientHello. Those of today's
// programs have less than 3 KiB.
const maxHello = 16 << 10

// errSeen stops a handshake once its ClientHello was read.
var errSeen = errors.New("the ClientHello was read")

// hello is what a program says as it begins to speak TLS.
type hello struct {
	name string // the server's name; of an encrypted ClientHello, the outer one
	raw  []byte // what was read so far: the ClientHello, and maybe more
}

// readHello reads a ClientHello. What was read is there even if there was an error.
func readHello(from io.Reader) (hello, error) {
	var raw bytes.Buffer
	bounded := &io.LimitedReader{R: from, N: maxHello}
	conn := &readOnly{from: io.TeeReader(bounded, &raw)}
	var h hello
	err := tls.Server(conn, &tls.Config{
		MinVersion: tls.VersionTLS10, //nolint:gosec // nothing is negotiated: what the far end accepts is its own affair
		GetConfigForClient: func(info *tls.ClientHelloInfo) (*tls.Config, error) {
			h.name = info.ServerName
			return nil, errSeen
		},
	}).Handshake() //nolint:noctx // the reader ends it
	h.raw = raw.Bytes()
	switch {
	case errors.Is(err, errSeen):
		return h, nil
	case bounded.N <= 0:
		return h, errors.New("its ClientHello is too long")
	case err == nil:
		return h, io.ErrUnexpectedEOF // cannot be: a handshake needs an answer
	}
	return h, fmt.Errorf("it is not a ClientHello: %w", err)
}

// compare refuses a ClientHello that is meant for another host than t. An address has no
// name to compare, so that programs send none for it.
func (h hello) compare(t target) error {
	if h.name == "" && t.addr.IsValid() {
		return nil
	}
	if h.name == "" {
		return &refusal{why: "the network of this session is limited, and the TLS connection names no server to compare with " + t.host}
	}
	if named, err := parseTarget(h.name, t.port); err != nil || named.host != t.host {
		return &refusal{why: fmt.Sprintf("the network of this session is limited, and the TLS connection is meant for %.253q, not for %s", h.name, t.host)}
	}
	return nil
}

// recordHandshake is the first byte of a TLS connection.
const recordHandshake = 22

// compare reads the ClientHello of a tunnel and passes it on if it names the host that the
// tunnel is for. On port 443 there has to be one. On others there may be another protocol,
// also one that lets the far end speak first.
func (p *pair) compare(inside net.Conn, from *bufio.Reader, outside net.Conn, rec *record, patience time.Duration) error {
	if rec.to.port != securePort {
		first, err := p.await(inside, from)
		if err != nil || first != recordHandshake {
			return err
		}
	}
	_ = inside.SetReadDeadline(time.Now().Add(patience))
	h, err := readHello(from)
	if err != nil {
		err = &refusal{why: "the network of this session is limited, so that the TLS connection has to name its server, and this is none: " + err.Error()}
	} else {
		err = h.compare(rec.to)
	}
	if err != nil {
		_ = inside.SetWriteDeadline(time.Now().Add(time.Second))
		_, _ = inside.Write(noName)
		return err
	}
	_ = outside.SetWriteDeadline(time.Now().Add(p.idle))
	n, err := outside.Write(h.raw)
	rec.sent.Add(int64(n))
	return err
}

// await waits for the first byte from inside, for as long as the other way is not silent,
// too. An end is passed on as such by whoever reads next.
func (p *pair) await(inside net.Conn, from *bufio.Reader) (byte, error) {
	for {
		_ = inside.SetReadDeadline(time.Now().Add(p.idle / looks))
		first, err := from.Peek(1)
		switch {
		case err == nil:
			return first[0], nil
		case errors.Is(err, io.EOF):
			return 0, nil
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return 0, err
		case p.silent():
			return 0, errSilent
		}
	}
}

// noName is the alert that says to a program that there is no such server.
var noName = []byte{21, 3, 1, 0, 2, 2, 112}

// readOnly is a connection that can be read: what is written to it goes nowhere.
type readOnly struct{ from io.Reader }

func (r *readOnly) Read(b []byte) (int, error)     { return r.from.Read(b) }
func (*readOnly) Write(b []byte) (int, error)      { return len(b), nil }
func (*readOnly) Close() error                     { return nil }
func (*readOnly) LocalAddr() net.Addr              { return nil }
func (*readOnly) RemoteAddr() net.Addr             { return nil }
func (*readOnly) SetDeadline(time.Time) error      { return nil }
func (*readOnly) SetReadDeadline(time.Time) error  { return nil }
func (*readOnly) SetWriteDeadline(time.Time) error { return nil }
