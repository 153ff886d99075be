//go:build linux

package connlimit_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse/internal/connlimit"
)

func TestWhoHasLeftIsKnownBeforeTheRequestIsRead(t *testing.T) {
	arrived, look, left := make(chan struct{}), make(chan struct{}), make(chan bool)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		<-look
		left <- connlimit.Left(r.Context())
	}))
	l := connlimit.New(10)
	s.Listener = l.Listen(s.Listener)
	l.Apply(s.Config)
	s.Start()
	defer s.Close()
	for name, leave := range map[string]func(*net.TCPConn){
		"stays": func(*net.TCPConn) {},
		"FIN":   func(c *net.TCPConn) { _ = c.Close() },
		"RST":   func(c *net.TCPConn) { _ = c.SetLinger(0); _ = c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			c, err := net.Dial("tcp", s.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			// The body is not read, so that the server itself cannot notice.
			if _, err := c.Write([]byte("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{}")); err != nil {
				t.Fatal(err)
			}
			<-arrived
			leave(c.(*net.TCPConn))
			time.Sleep(20 * time.Millisecond) // it has to arrive
			look <- struct{}{}
			if got := <-left; got != (name != "stays") {
				t.Errorf("left: %v", got)
			}
		})
	}
}
