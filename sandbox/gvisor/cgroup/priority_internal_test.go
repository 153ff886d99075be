//go:build linux

package cgroup

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// recorder remembers the weights that were set.
type recorder struct {
	*Priority
	t    *testing.T
	last Weight
	n    int
}

func newRecorder(t *testing.T) *recorder {
	s := &recorder{t: t}
	s.Priority = newPriority(func(w Weight) error { s.last, s.n = w, s.n+1; return nil }, slog.New(slog.DiscardHandler))
	return s
}

// after lets time pass and checks the weight then.
func (s *recorder) after(d time.Duration, want Weight, why string) {
	s.t.Helper()
	time.Sleep(d) // virtual
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last != want {
		s.t.Errorf("%s: its weight is %v", why, s.last)
	}
}

func TestPriorityIsForegroundWhileSomebodyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newRecorder(t)
		one := s.Wait()
		s.after(patience/2, Foreground, "somebody waits")
		two := s.Wait()
		one()
		one()
		s.after(0, Foreground, "somebody else waits")
		two()
		s.after(linger/2, Foreground, "nobody waits just now")
		three := s.Wait()
		s.after(linger, Foreground, "somebody waits again")
		three()
		s.after(linger, Background, "nobody waits any more")
		s.after(time.Hour, Background, "much later")
		if s.n != 2 {
			t.Errorf("its weight was set %d times", s.n)
		}
	})
}

func TestPriorityIsBackgroundForWhatTakesLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newRecorder(t)
		long := s.Wait()
		s.after(2*patience, Background, "it takes long")
		short := s.Wait()
		s.after(0, Foreground, "something else was asked for")
		long()
		s.after(0, Foreground, "the long one ended meanwhile")
		short()
		s.after(linger, Background, "both have ended")
	})
}

func TestPriorityIsHeldHoweverLongItTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newRecorder(t)
		release := s.Hold()
		s.after(time.Hour, Foreground, "it is being opened")
		release()
		s.after(linger, Background, "it is open")
	})
}

func TestPriorityIsForegroundForAWhileAfterAWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newRecorder(t)
		for range 10 {
			s.Touch()
			s.after(patience*3/4, Foreground, "keys are pressed")
		}
		s.after(patience+linger, Background, "no key was pressed lately")
		s.Touch()
		s.after(patience/2, Foreground, "one more")
		if s.n != 3 {
			t.Errorf("its weight was set %d times", s.n)
		}
	})
}

func TestClosedPriorityIsBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newRecorder(t)
		done := s.Wait()
		s.Touch()
		s.close()
		s.after(0, Background, "the server lets go while somebody waits")
		n := s.n
		s.close()
		s.Wait()()
		s.Touch()
		done()
		s.after(time.Hour, Background, "nobody is there")
		if s.n != n {
			t.Error("its weight was set once more")
		}
	})
}

func TestWeightIsWrittenWhereTheKernelReadsIt(t *testing.T) {
	for _, c := range []struct {
		group Group
		w     Weight
		want  setting
	}{
		{Group{}, Foreground, setting{"cpu", "cpu.shares", "512"}},
		{Group{}, Background, setting{"cpu", "cpu.shares", "32"}},
		{Group{unified: true}, Foreground, setting{"cpu", "cpu.weight", "50"}},
		{Group{unified: true}, Background, setting{"cpu", "cpu.weight", "3"}},
	} {
		if got := c.group.weightSetting(c.w); got != c.want {
			t.Errorf("%+v: %+v", c.group, got)
		}
	}
}

func TestSettingTheWeightOfAnEndedSandboxIsNoError(t *testing.T) {
	gone := Group{flat: "dormouse-no-such-group"}
	if _, err := os.Stat(filepath.Dir(gone.dir("cpu"))); errors.Is(err, os.ErrNotExist) {
		t.Skip("no cgroups of the first version")
	}
	if err := gone.SetWeight(Foreground); err != nil {
		t.Error(err)
	}
}
