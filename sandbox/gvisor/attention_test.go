//go:build linux

package gvisor

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// scales remember what was weighed.
type scales struct {
	*attention
	t    *testing.T
	last weight
	n    int
}

func newScales(t *testing.T) *scales {
	s := &scales{t: t}
	s.attention = newAttention(func(w weight) error { s.last, s.n = w, s.n+1; return nil }, slog.New(slog.DiscardHandler))
	return s
}

// after lets time pass and looks what the sandbox weighs then.
func (s *scales) after(d time.Duration, want weight, why string) {
	s.t.Helper()
	time.Sleep(d) // virtual
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last != want {
		s.t.Errorf("%s: it weighs %v", why, s.last)
	}
}

func TestSandboxWeighsMoreWhileSomebodyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScales(t)
		one := s.Wait()
		s.after(patience/2, usual, "somebody waits")
		two := s.Wait()
		one()
		one()
		s.after(0, usual, "somebody else waits")
		two()
		s.after(linger/2, usual, "nobody waits just now")
		three := s.Wait()
		s.after(linger, usual, "somebody waits again")
		three()
		s.after(linger, resting, "nobody waits any more")
		s.after(time.Hour, resting, "much later")
		if s.n != 2 {
			t.Errorf("it was weighed %d times", s.n)
		}
	})
}

func TestWhatTakesLongIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScales(t)
		long := s.Wait()
		s.after(2*patience, resting, "it takes long")
		short := s.Wait()
		s.after(0, usual, "something else was asked for")
		long()
		s.after(0, usual, "the long one ended meanwhile")
		short()
		s.after(linger, resting, "both have ended")
	})
}

func TestSandboxThatIsOpenedIsHeldHoweverLongItTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScales(t)
		release := s.hold()
		s.after(time.Hour, usual, "it is being opened")
		release()
		s.after(linger, resting, "it is open")
	})
}

func TestWritingToAStreamCountsForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScales(t)
		for range 10 {
			s.Touch()
			s.after(patience*3/4, usual, "keys are pressed")
		}
		s.after(patience+linger, resting, "no key was pressed lately")
		s.Touch()
		s.after(patience/2, usual, "one more")
		if s.n != 3 {
			t.Errorf("it was weighed %d times", s.n)
		}
	})
}

func TestSandboxIsLeftAtRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScales(t)
		done := s.Wait()
		s.Touch()
		s.close()
		s.after(0, resting, "the server lets go while somebody waits")
		n := s.n
		s.close()
		s.Wait()()
		s.Touch()
		done()
		s.after(time.Hour, resting, "nobody is there")
		if s.n != n {
			t.Error("it was weighed once more")
		}
	})
}

func TestWeightIsWrittenWhereTheKernelReadsIt(t *testing.T) {
	for _, c := range []struct {
		cgroup cgroup
		w      weight
		want   setting
	}{
		{cgroup{}, usual, setting{"cpu", "cpu.shares", "512"}},
		{cgroup{}, resting, setting{"cpu", "cpu.shares", "32"}},
		{cgroup{unified: true}, usual, setting{"cpu", "cpu.weight", "50"}},
		{cgroup{unified: true}, resting, setting{"cpu", "cpu.weight", "3"}},
	} {
		if got := c.cgroup.weighing(c.w); got != c.want {
			t.Errorf("%+v: %+v", c.cgroup, got)
		}
	}
}

func TestSandboxThatHasEndedIsNotWeighed(t *testing.T) {
	gone := cgroup{flat: "dormouse-no-such-group"}
	if _, err := os.Stat(filepath.Dir(gone.dir("cpu"))); errors.Is(err, os.ErrNotExist) {
		t.Skip("no cgroups of the first version")
	}
	if err := gone.weigh(usual); err != nil {
		t.Error(err)
	}
}
