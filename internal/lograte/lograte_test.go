package lograte_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dormouse-run/dormouse/internal/lograte"
)

// lockedBuffer is written to by the timers of a handler.
type lockedBuffer struct {
	mu  sync.Mutex
	all bytes.Buffer // guarded by mu
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.String()
}

func (b *lockedBuffer) Reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all.Reset()
}

func TestTheFirstAreWrittenAndTheRestCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out lockedBuffer
		log := slog.New(lograte.New(slog.NewTextHandler(&out, nil), lograte.Options{Burst: 3, Every: time.Minute})).With("session", "sesn_1")
		for range 2 {
			out.Reset()
			for range 1000 {
				log.Warn("refused")
				log.Info("something else")
			}
			if n := strings.Count(out.String(), "\n"); n != 6 {
				t.Errorf("%d lines at once, want 6", n)
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			for _, want := range []string{
				`level=WARN msg="log lines left out" session=sesn_1 message=refused count=997`,
				`level=INFO msg="log lines left out" session=sesn_1 message="something else" count=997`,
			} {
				if strings.Count(out.String(), want) != 1 {
					t.Errorf("not said once: %s in\n%s", want, out.String())
				}
			}
		}
	})
}

func TestMessagesThatVaryCountTogether(t *testing.T) {
	for _, o := range []lograte.Options{{Burst: 2, Together: true}, {Burst: 2}} {
		synctest.Test(t, func(t *testing.T) {
			var out bytes.Buffer
			h := lograte.New(slog.NewTextHandler(&out, nil), o)
			for i := range 10000 {
				slog.New(h).Warn(fmt.Sprint("from ", i)) //nolint:sloglint // that is the case
			}
			h.Flush()
			if n := strings.Count(out.String(), "\n"); n > 270 || !strings.Contains(out.String(), lograte.LeftOut) {
				t.Errorf("%d lines", n)
			}
		})
	}
}

func TestNothingIsSaidOfNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		h := lograte.New(slog.NewTextHandler(&out, nil), lograte.Options{})
		slog.New(h).Warn("refused")
		time.Sleep(time.Hour)
		h.Flush()
		if n := strings.Count(out.String(), "\n"); n != 1 {
			t.Errorf("%d lines: %s", n, out.String())
		}
	})
}

func TestWhatWasLeftOutIsSaidAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		h := lograte.New(slog.NewTextHandler(&out, nil), lograte.Options{Burst: 1})
		log := slog.New(h)
		for range 5 {
			log.Warn("refused")
		}
		h.Flush()
		h.Flush()
		time.Sleep(time.Hour)
		if strings.Count(out.String(), "count=4") != 1 {
			t.Error(out.String())
		}
	})
}

func TestValuesAreBoundedAndEscaped(t *testing.T) {
	var out bytes.Buffer
	long := strings.Repeat("é", 1<<20)
	log := slog.New(lograte.New(slog.NewTextHandler(&out, nil), lograte.Options{MaxValue: 64})).With("host", long)
	log.Warn("refused", "path", long, "error", errors.New(long), slog.Group("more", "agent", long), "list", []string{long}, "line", "a\nlevel=ERROR msg=forged \x1b[2J")
	if n := out.Len(); n > 1500 {
		t.Errorf("the line has %d bytes", n)
	}
	if text := out.String(); strings.Count(text, "\n") != 1 || strings.Contains(text, "\x1b") || strings.Contains(text, "\uFFFD") {
		t.Errorf("the line is %q", text)
	}
}
