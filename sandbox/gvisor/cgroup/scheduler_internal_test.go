//go:build linux

package cgroup

import (
	"log/slog"
	"testing"
)

// A sandbox may be opened again before its previous holder has closed it: neither it nor
// where it runs may be forgotten then.
func TestSandboxThatIsOpenedAgainIsNotForgotten(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	s := &Scheduler{instance: "none", cpus: cpus{all: "0,1", background: "1"}, log: log, members: make(map[string]*member)}
	const twice, once = "twice", "once" // which have no groups
	first := s.Join(twice, log)
	defer s.Join(once, log).Hold()()
	if s.divide(true); !s.members[twice].confined {
		t.Fatal("nobody waits for it, and it is not confined")
	}
	second := s.Join(twice, log)
	s.Leave(twice, first)
	if s.priority(twice) != second {
		t.Fatal("it was forgotten with whoever had it before")
	}
	if !s.members[twice].confined {
		t.Error("it is believed to run on all CPUs")
	}
	defer second.Hold()()
	if s.divide(true); s.members[twice].confined {
		t.Error("somebody waits for it, and it is confined")
	}
}
