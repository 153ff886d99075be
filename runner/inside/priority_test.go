//go:build linux

package inside_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse/runner"
)

// noted counts the callers that wait.
type noted struct{ asked, waiting, touched atomic.Int64 }

func (n *noted) Wait() (done func()) {
	n.asked.Add(1)
	n.waiting.Add(1)
	return func() { n.waiting.Add(-1) }
}

func (n *noted) Touch() { n.touched.Add(1) }

func (r *rig) noted(t *testing.T) (*runner.Link, *noted) {
	t.Helper()
	n := new(noted)
	l, err := runner.Listen(runner.LinkOptions{Path: r.socket, Secret: secret, Fence: fence(1, 1), Heartbeat: heartbeat, ReconnectTimeout: 5 * time.Second, Priority: n})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	if err := l.Ready(deadline(t)); err != nil {
		t.Fatal(err)
	}
	return l, n
}

func TestPriorityIsRaisedUntilARequestIsAnswered(t *testing.T) {
	r := newRig(t)
	r.run(t)
	l, n := r.noted(t)
	c := exec("until [ -e go ]; do sleep 0.01; done")
	ended := make(chan error, 1)
	go func() {
		_, err := l.Run(deadline(t), c, func() {}, nil)
		ended <- err
	}()
	eventually(t, "somebody waits", func() bool { return n.waiting.Load() > 0 })
	touch := exec("touch go")
	start(t, l, touch)
	wait(t, l, touch.Op)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if left := n.waiting.Load(); left != 0 {
		t.Errorf("%d still wait", left)
	}
}

func TestPriorityIsNotRaisedAfterALinkIsOver(t *testing.T) {
	r := newRig(t)
	r.run(t)
	l, n := r.noted(t)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := l.Start(deadline(t), exec("true")); err == nil {
		t.Error("a closed link starts something")
	}
	if n.asked.Load() == 0 || n.waiting.Load() != 0 {
		t.Errorf("%d asked, %d wait", n.asked.Load(), n.waiting.Load())
	}
}

func TestPriorityIsRaisedByAWriteToAStream(t *testing.T) {
	r := newRig(t)
	r.run(t)
	l, n := r.noted(t)
	c := stream(t, l, runner.Stream{Terminal: &runner.Terminal{ID: "a", Command: []string{"cat"}, Rows: 24, Cols: 80}})
	if got := n.touched.Load(); got != 0 {
		t.Errorf("touched %d times before anything was written", got)
	}
	if _, err := c.Write([]byte("x\n")); err != nil {
		t.Fatal(err)
	}
	if got := n.touched.Load(); got != 1 {
		t.Errorf("touched %d times", got)
	}
}
