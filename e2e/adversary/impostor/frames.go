//go:build linux

package impostor

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dormouse-run/dormouse/runner"
)

// Framed is JSON as it goes over the wire. What stands before it is what the protocol
// puts there, with the length it has to have.
func Framed(kind runner.Kind, json []byte) []byte {
	const bytesOfLength = 4
	size := uint32(len(json))
	plain := func() []byte { return slices.Concat(binary.BigEndian.AppendUint32(nil, size), json) }
	like, err := runner.AppendFrame(nil, runner.Frame{Kind: kind})
	start := bytes.IndexByte(like, '{')
	if err != nil || start < bytesOfLength {
		return plain()
	}
	head := bytes.Clone(like[:start])
	body := uint32(len(like) - start)
	for at := 0; at+bytesOfLength <= len(head); at++ {
		if binary.BigEndian.Uint32(head[at:]) == body {
			binary.BigEndian.PutUint32(head[at:], size)
			return slices.Concat(head, json)
		}
	}
	return plain()
}

// rest is room for what a frame has beside the field that is filled.
const rest = 256

// shapes are ways to fill a field: longer than is read, with more values than bytes, and
// as long as is accepted.
func (f Field) shapes(within runner.Bounds) [][]byte {
	return [][]byte{
		f.Filled(runner.MaxFrame - rest), f.Filled(1 << 20), f.Filled(within.Head - rest), f.Some(within.Head-rest, within.Values-rest/8),
	}
}

// Flood sends frames of every kind in which the field is as long as a frame may be, or
// almost, over several connections, for so long. It returns how many were sent whole.
func (r Runner) Flood(f Field, conns int, long time.Duration) (sent int64, err error) {
	r, give := r.Alone()
	defer give()
	within := runner.FromRunner()
	shapes := f.shapes(within)
	until := time.Now().Add(long)
	var total atomic.Int64
	var failed atomic.Value
	// One at a time: a new connection replaces the one before, but by then the frames of
	// that one are being read.
	var sending sync.Mutex
	var all sync.WaitGroup
	for n := range conns {
		all.Go(func() {
			for i := n; ; i++ {
				kind := Kinds()[i%len(Kinds())]
				sending.Lock()
				if time.Now().After(until) { // perhaps while it waited for its turn
					sending.Unlock()
					return
				}
				shape := shapes[(i/conns+i)%len(shapes)]
				frame := Framed(kind, f.JSON(kind, uint64(i%64), shape))
				if i%2 == 0 && len(shape) <= within.Head {
					frame = append(frame, bulky()...)
				}
				err := r.burst(frame)
				sending.Unlock()
				if err != nil {
					failed.Store(err.Error())
					continue
				}
				total.Add(1)
			}
		})
	}
	all.Wait()
	if why, ok := failed.Load().(string); ok && total.Load() == 0 {
		err = fmt.Errorf("none was sent: %s", why)
	}
	return total.Load(), err
}

// bulky are frames with as much bulk as is taken.
func bulky() (b []byte) {
	result := runner.Result{Output: make([]byte, runner.FromRunner().Body)}
	for id := range uint64(2) {
		b, _ = runner.AppendFrame(b, runner.Frame{Kind: runner.KindReply, ID: id, Report: &runner.Report{Result: &result}}) // it fits
	}
	return b
}

// burst binds and sends bytes. The connection is left open for a moment.
func (r Runner) burst(frames []byte) error {
	c, err := r.Bind(runner.Hello{})
	if err != nil {
		return err
	}
	time.AfterFunc(time.Second, func() { _ = c.Close() })
	return c.Raw(frames)
}

// Greet says hello over many connections at once, each with the field as long as a
// stranger's frame may be.
func (r Runner) Greet(f Field, conns int, long time.Duration) (sent int64, err error) {
	var frames [][]byte
	for _, within := range []runner.Bounds{runner.FromUnauthenticated(), {Head: 256 << 10, Values: 1 << 20}} {
		for _, shape := range f.shapes(within)[2:] {
			frames = append(frames, Framed(runner.KindHello, f.JSON(runner.KindHello, 1, shape)))
		}
	}
	until := time.Now().Add(long)
	var total atomic.Int64
	var all sync.WaitGroup
	for n := range conns {
		all.Go(func() {
			for i := n; time.Now().Before(until); i++ {
				c, err := r.dial()
				if err != nil {
					time.Sleep(10 * time.Millisecond)
					continue
				}
				if (&Conn{Conn: c}).Raw(frames[i%len(frames)]) == nil {
					total.Add(1)
					_, _ = c.Read(make([]byte, 1)) // until it is turned away
				}
				_ = c.Close()
			}
		})
	}
	all.Wait()
	if total.Load() == 0 {
		err = fmt.Errorf("nobody listens at %s", r.Socket)
	}
	return total.Load(), err
}

// Broken sends what is no frame, or a frame with what no number, text or nesting
// should be, each over a connection of its own.
func (r Runner) Broken() (sent int, err error) {
	for _, b := range broken() {
		if err = r.burst(b); err == nil {
			sent++
		}
		c, dialed := r.dial()
		if dialed != nil {
			continue
		}
		_ = (&Conn{Conn: c}).Raw(b) // also before authentication
		_ = c.Close()
	}
	if sent > 0 {
		err = nil
	}
	return sent, err
}

func broken() (all [][]byte) {
	const depth = 1 << 20
	frame := func(text string) { all = append(all, Framed(runner.KindReply, []byte(text))) }
	for _, f := range Numbers() {
		for _, n := range []string{"-1", "9223372036854775807", "-9223372036854775808", "18446744073709551616", "1e999", "NaN", "-0", `"1"`, "0.5"} {
			all = append(all, Framed(runner.KindReply, f.JSON(runner.KindReply, 1, []byte(n))))
		}
	}
	for _, f := range Texts() {
		for _, s := range []string{"\"\xff\xfe\xc0\x80\"", `"\ud800"`, `"\u0000"`, "\"\x1b[2J\"", "7", "null", "[]"} {
			all = append(all, Framed(runner.KindReply, f.JSON(runner.KindReply, 1, []byte(s))))
		}
	}
	frame(strings.Repeat("[", depth))
	frame(strings.Repeat(`{"call":`, depth/8))
	frame(`{"kind":"reply","id":1,` + strings.Repeat(`"ports":[{}],`, depth/16) + `"id":1}`)
	frame(`{"kind":"reply","id":1,"ports":[{}],"ports":[{},{}],"victims":{},"terminals":"x"}`)
	frame(`{"kind":"refused","refusal":"stale"`)
	frame(`{"` + strings.Repeat("k", depth) + `":1}`)
	frame("null")
	frame("")
	frame("\x00")
	for _, raw := range []string{"", "\x00\x00\x00\x00", "\xff\xff\xff\xff", "\x7f\xff\xff\xff{", "\x00\x10\x00\x00{", "GET / HTTP/1.1\r\n\r\n", strings.Repeat("\xff", 1<<16)} {
		all = append(all, []byte(raw))
	}
	return all
}

// Knock says hello n times with a secret that is none, or as often as it can in so long.
func (r Runner) Knock(n int, long time.Duration) (sent int, err error) {
	return often(n, long, func(i int) error {
		c, err := r.dial()
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		hello := runner.Hello{Protocol: runner.Protocol, Secret: "wrong"}
		if i%2 == 1 { // the right one in a protocol that is none
			hello.Protocol = runner.Protocol + 1 + i
			hello.Secret, _ = r.secret()
		}
		err = (&Conn{Conn: c}).Say(runner.Frame{Kind: runner.KindHello, Hello: &hello})
		_, _ = c.Read(make([]byte, 1))
		return err
	})
}

// Leave sends n requests for what may not be reached to the proxy, or as many as it can in
// so long.
func (r Runner) Leave(n int, long time.Duration) (sent int, err error) {
	return often(n, long, func(i int) error {
		c, err := net.DialTimeout("tcp", r.Proxy, handshakeTimeout)
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		_ = c.SetDeadline(time.Now().Add(handshakeTimeout))
		const ports = 60_000
		_, err = fmt.Fprintf(c, "CONNECT 169.254.169.254:%d HTTP/1.1\r\nHost: h%d\r\n\r\n", i%ports+1, i)
		_, _ = c.Read(make([]byte, 1))
		return err
	})
}

// often does something n times, by several at once, until it takes too long. It fails only
// if it never succeeded.
func often(n int, long time.Duration, do func(i int) error) (done int, err error) {
	const workers = 16
	until := time.Now().Add(long)
	var mu sync.Mutex
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for i := w; i < n && time.Now().Before(until); i += workers {
				failed := do(i)
				mu.Lock()
				if err = failed; failed == nil {
					done++
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if done > 0 {
		err = nil
	}
	return done, err
}
