package session_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
)

// large is a session whose first event is in a blob.
func large() dormouse.Created {
	a := everyTool()
	a.System = strings.Repeat("a long instruction ", 4000)
	return dormouse.Created{Agent: a}
}

// A sweep sets the files of sessions aside that are not there.
func TestASessionWhoseBlobIsMissingKeepsItsWorkspace(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		var mount func()
		h.damaged(large(), func() { mount = h.blobs.unmount() })
		if err := h.prompt("refused", "are you there?"); !errors.Is(err, dormouse.ErrDamaged) {
			t.Fatalf("a prompt = %v, want ErrDamaged", err)
		}
		if o := h.live.Owned(t.Context(), h.id); !o.Unsure {
			t.Errorf("a sweep is told %+v, want that nobody can tell", o)
		}
		if o := h.live.Owned(t.Context(), "sesn_0000000000000000000000000z"); o.Unsure || o.Known {
			t.Errorf("of no session a sweep is told %+v", o)
		}
		mount()
		settle(2 * time.Minute)
		if o := h.live.Owned(t.Context(), h.id); !o.Known {
			t.Errorf("when the blobs are back a sweep is told %+v", o)
		}
		h.mustPrompt("two", script("effect b"))
		settle(time.Minute)
		if n := h.boxes.effect("b"); n != 1 {
			t.Errorf("it acted %d times", n)
		}
		h.checked()
	})
}
