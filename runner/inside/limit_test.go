//go:build linux

package inside_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/runner"
)

func TestRelieveKillsTheLargestAndItsOpSaysSo(t *testing.T) {
	_, l := open(t)
	small, large := exec("sleep 30"), exec(`perl -e '$x = "a" x (64 << 20); $| = 1; print "full\n"; sleep 60'`)
	start(t, l, small)
	start(t, l, large)
	full := make(chan struct{})
	result := make(chan string, 1)
	go func() {
		res, err := l.Wait(deadline(t), large.Op, func(b []byte) {
			if strings.Contains(string(b), "full") {
				close(full)
			}
		})
		if err != nil {
			t.Error(err)
		}
		result <- res.Error
	}()
	<-full
	victims, err := l.Relieve(deadline(t), 1<<20)
	if err != nil || len(victims) != 1 || victims[0].RSS < 64<<20 || !strings.HasPrefix(victims[0].Command, "perl -e") {
		t.Fatalf("killed %+v, %v", victims, err)
	}
	if got := <-result; got != victims[0].String() {
		t.Errorf("the op says %q", got)
	}
	if report, err := l.Ask(deadline(t), small.Op); err != nil || report.State != "running" {
		t.Errorf("the other op: %+v, %v", report, err)
	}
	// It kills as many as it takes, until no process is left.
	if victims, err = l.Relieve(deadline(t), 1<<40); err != nil || len(victims) == 0 {
		t.Errorf("killed %+v, %v", victims, err)
	}
	if res, err := l.Wait(deadline(t), small.Op, nil); err != nil || !strings.Contains(res.Error, "out of memory") {
		t.Errorf("the other op: %+v, %v", res, err)
	}
	if _, err := l.Relieve(deadline(t), 1); !errors.Is(err, dormouse.ErrNotFound) {
		t.Errorf("nobody is left, and relieve says %v", err)
	}
}

// Memory that no process maps is held by the processes that have its file open.
func TestRelieveFindsWhoHoldsAFileOfMemory(t *testing.T) {
	_, l := open(t)
	mapped := exec(`perl -e '$x = "a" x (32 << 20); $| = 1; print "full\n"; sleep 60'`)
	file := exec(`perl -e '$n = "x"; open(F, ">&=", syscall(` + strconv.Itoa(unix.SYS_MEMFD_CREATE) + `, $n, 0)); select(F); $| = 1; print "a" x (1 << 20) for 1..128;
		select(STDOUT); $| = 1; print "full\n"; sleep 60'`)
	for _, c := range []runner.Call{mapped, file} {
		start(t, l, c)
		full := make(chan struct{})
		go func() {
			_, _ = l.Wait(deadline(t), c.Op, func(b []byte) {
				if strings.Contains(string(b), "full") {
					close(full)
				}
			})
		}()
		<-full
	}
	victims, err := l.Relieve(deadline(t), 1<<20)
	if err != nil || len(victims) != 1 || victims[0].RSS < 128<<20 {
		t.Fatalf("killed %+v, %v", victims, err)
	}
	if report, err := l.Ask(deadline(t), mapped.Op); err != nil || report.State != "running" {
		t.Errorf("the other op: %+v, %v", report, err)
	}
}

func TestRelieveOfAnOlderEpochIsRefused(t *testing.T) {
	r, old := open(t)
	c := exec("sleep 30")
	start(t, old, c)
	next := r.link(t, fence(1, 2))
	if _, err := old.Relieve(deadline(t), 1); err == nil {
		t.Error("an older epoch was obeyed")
	}
	if report, err := next.Ask(deadline(t), c.Op); err != nil || report.State != "running" {
		t.Errorf("the op: %+v, %v", report, err)
	}
}
