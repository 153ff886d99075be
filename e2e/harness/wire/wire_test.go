package wire_test

import (
	"bufio"
	"bytes"
	"errors"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse/e2e/harness/wire"
)

// laid is a wire to a server that repeats every line it hears.
func laid(t *testing.T) *wire.Wire {
	t.Helper()
	w, _ := heard(t)
	return w
}

// heard is such a wire, and what the server heard.
func heard(t *testing.T) (*wire.Wire, <-chan string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { l.Close() })
	lines := make(chan string, 10)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for r := bufio.NewScanner(c); r.Scan(); {
					lines <- r.Text()
					_, _ = c.Write([]byte(r.Text() + "\n"))
				}
			}()
		}
	}()
	w, err := wire.New("tcp", l.Addr().String())
	must(t, err)
	t.Cleanup(w.Close)
	return w, lines
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// client says lines and hears them.
type client struct {
	net.Conn
	r *bufio.Reader
}

func dial(t *testing.T, w *wire.Wire) client {
	t.Helper()
	c, err := net.Dial("tcp", w.Addr())
	must(t, err)
	t.Cleanup(func() { c.Close() })
	return client{c, bufio.NewReader(c)}
}

func (c client) say(text string) (string, error) {
	if _, err := c.Write([]byte(text + "\n")); err != nil {
		return "", err
	}
	line, err := c.r.ReadString('\n')
	return line, err
}

func TestWireCarries(t *testing.T) {
	w := laid(t)
	if got, err := dial(t, w).say("hello"); got != "hello\n" || err != nil {
		t.Errorf("heard %q, %v", got, err)
	}
}

func TestHeldWireDelaysAndTellsNobody(t *testing.T) {
	w := laid(t)
	c := dial(t, w)
	_, err := c.say("hello")
	must(t, err)
	w.Hold()
	must(t, c.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	if got, err := c.say("held"); !errors.Is(err, syscall.EAGAIN) && !isTimeout(err) {
		t.Errorf("heard %q, %v over a held wire", got, err)
	}
	must(t, c.SetReadDeadline(time.Time{}))
	must(t, w.Heal())
	if got, err := c.r.ReadString('\n'); got != "held\n" || err != nil {
		t.Errorf("heard %q, %v once it was healed", got, err)
	}
}

func isTimeout(err error) bool {
	e, ok := errors.AsType[net.Error](err)
	return ok && e.Timeout()
}

func TestRefusedWireBreaksAndComesBack(t *testing.T) {
	w := laid(t)
	c := dial(t, w)
	w.Refuse()
	if got, err := c.say("hello"); err == nil {
		t.Errorf("heard %q over a broken wire", got)
	}
	if _, err := net.Dial("tcp", w.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dial = %v, want refused", err)
	}
	must(t, w.Heal())
	if got, err := dial(t, w).say("again"); got != "again\n" || err != nil {
		t.Errorf("heard %q, %v", got, err)
	}
}

func TestWatchedWordIsPassedOnAndNotAnswered(t *testing.T) {
	w, lines := heard(t)
	w.Watch(func(p wire.Piece) bool { return !p.Back && bytes.Contains(p.Data, []byte("commit")) })
	c := dial(t, w)
	if got, err := c.say("begin"); got != "begin\n" || err != nil {
		t.Errorf("heard %q, %v", got, err)
	}
	if got, err := c.say("commit"); err == nil {
		t.Errorf("heard %q, want a broken connection", got)
	}
	if first, second := <-lines, <-lines; first != "begin" || second != "commit" {
		t.Errorf("the far end heard %q and %q", first, second)
	}
	w.Watch(nil)
	if got, err := dial(t, w).say("commit"); got != "commit\n" || err != nil {
		t.Errorf("heard %q, %v", got, err)
	}
}
