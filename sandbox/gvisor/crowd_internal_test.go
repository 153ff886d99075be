//go:build linux

package gvisor

import (
	"log/slog"
	"testing"
)

// A sandbox may be opened again before whoever had it has let go: it must not be
// forgotten then, nor where it is.
func TestSandboxThatIsOpenedAgainIsNotForgotten(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	c := crowd{cpus: processors{all: "0,1", rest: "1"}, log: log}
	none := cgroup{flat: "dormouse-none", path: "dormouse/none"} // there is no such
	twice, once := box{id: "twice"}, box{id: "once"}
	first := c.join(twice, none, log)
	defer c.join(once, none, log).hold()()
	if c.settle(true); !c.members[twice.id].away {
		t.Fatal("nobody waits for it, and it stays")
	}
	second := c.join(twice, none, log)
	c.leave(twice, first)
	if c.of(twice) != second {
		t.Fatal("it was forgotten with whoever had it before")
	}
	if !c.members[twice.id].away {
		t.Error("it is believed to run everywhere")
	}
	defer second.hold()()
	if c.settle(true); c.members[twice.id].away {
		t.Error("somebody waits for it, and it is kept away")
	}
}
