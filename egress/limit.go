package egress

import (
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

// limited is a listener that refuses connections above a limit.
type limited struct {
	net.Listener
	free chan struct{} // holds one for each open connection
}

// counted is a connection that counts until it is closed.
type counted struct {
	net.Conn
	release func()
}

func (c *counted) Close() error {
	defer c.release()
	return c.Conn.Close()
}

// CloseWrite lets net/http end a response before it gives up on the rest of the
// request.
func (c *counted) CloseWrite() error { return closeWrite(c.Conn) }

func (l *limited) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case l.free <- struct{}{}:
			return &counted{Conn: c, release: sync.OnceFunc(func() { <-l.free })}, nil
		default:
			turnAway(c, cap(l.free))
		}
	}
}

// turnAway never blocks: the text fits into the buffer of any new socket.
func turnAway(c net.Conn, most int) {
	text := fmt.Sprintf("dormouse: this session has %d connections open, which is as many as it may.\n", most)
	_ = c.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = fmt.Fprintf(c, "HTTP/1.1 %d %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
		http.StatusServiceUnavailable, http.StatusText(http.StatusServiceUnavailable), len(text), text)
	_ = c.Close()
}
