package s3

import (
	"context"
	"net"
	"net/http"
	"time"
)

// newTransport makes connections that end when the other side is silent for too
// long, however long a request as a whole may take.
func newTransport(patience time.Duration) *http.Transport {
	dialer := &net.Dialer{Timeout: min(patience, 10*time.Second)}
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return &conn{Conn: c, patience: patience}, nil
		},
		MaxIdleConnsPerHost: 16,
		IdleConnTimeout:     30 * time.Second,
		TLSHandshakeTimeout: patience,
		DisableCompression:  true, // blobs are what they are
	}
}

// conn fails when nothing moves for as long as its patience lasts.
type conn struct {
	net.Conn
	patience time.Duration
}

func (c *conn) Read(b []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(c.patience)); err != nil {
		return 0, err
	}
	return c.Conn.Read(b)
}

// Write extends the deadline for reading too: a server that is still receiving does not
// answer yet.
func (c *conn) Write(b []byte) (int, error) {
	if err := c.SetDeadline(time.Now().Add(c.patience)); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}
