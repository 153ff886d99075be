package session_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/fleet"
)

// reader follows a session and fails on any gap or repeat.
type reader struct {
	mu     sync.Mutex
	last   uint64 // guarded by mu
	deltas string // guarded by mu
}

func (m *member) read(ctx context.Context, wg *sync.WaitGroup) *reader {
	r := new(reader)
	f, err := m.live.Follow(ctx, m.id, 0)
	if err != nil {
		m.t.Fatal(err)
	}
	wg.Go(func() {
		defer f.Close()
		for {
			items, err := f.Next(ctx)
			if err != nil {
				return
			}
			r.mu.Lock()
			for _, i := range items {
				switch {
				case i.Delta != nil:
					r.deltas += i.Delta.Text
				case i.Event.Seq != r.last+1:
					m.t.Errorf("%d after %d", i.Event.Seq, r.last)
					fallthrough
				default:
					r.last = i.Event.Seq
				}
			}
			r.mu.Unlock()
		}
	})
	return r
}

func TestFollowersOnAnyServerSeeEveryEventOnceWhereverTheSessionMoves(t *testing.T) {
	together(t, 4, func(t *testing.T, f *cluster) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var wg sync.WaitGroup
		a := f.servers[0]
		a.create(dormouse.Created{})
		var readers []*reader
		for _, m := range f.servers[2:] {
			readers = append(readers, m.on(a).read(ctx, &wg), m.read(ctx, &wg))
		}
		say := func(m *member, words string) string {
			m.on(a).mustPrompt(words, fmt.Sprintf(`SCRIPT[{"text":%q,"chunks":10,"chunk_delay_ms":200}]`, words))
			settle(5 * time.Second)
			return words
		}
		say(f.servers[0], "first words of all")
		f.servers[0].kill()
		settle(10 * time.Second)
		say(f.servers[1], "second words of all")
		f.servers[1].close()
		settle(time.Second)
		say(f.servers[2], "third words of all")
		settle(time.Minute)
		say(f.servers[3], "fourth words of all")
		settle(2 * time.Second)

		end := uint64(len(f.servers[2].checked()))
		for i, r := range readers {
			r.mu.Lock()
			if r.last != end {
				t.Errorf("reader %d saw %d of %d", i, r.last, end)
			}
			for _, words := range []string{"irst", "econd", "hird", "ourth"} { // what a relay misses of a fresh reply is its beginning
				if n := strings.Count(r.deltas, words+" words of a"); n != 1 {
					t.Errorf("reader %d saw the %s words come %d times: %s", i, words, n, r.deltas)
				}
			}
			r.mu.Unlock()
		}
		stop()
		wg.Wait()
	})
}

// Without a relay there is still the log.
func TestFollowersOfAServerThatNobodyReachesReadTheLog(t *testing.T) {
	together(t, 2, func(t *testing.T, f *cluster) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var wg sync.WaitGroup
		a, b := f.servers[0], f.servers[1]
		a.create(dormouse.Created{})
		a.dead.Store(true) // it works, and cannot be reached
		r := b.on(a).read(ctx, &wg)
		a.mustPrompt("p", script("effect a", "sleep 10s", "effect b"))
		settle(2 * time.Second)
		r.mu.Lock()
		if n := uint64(len(a.log())); r.last != n {
			t.Errorf("saw %d of %d", r.last, n)
		}
		r.mu.Unlock()
		settle(20 * time.Second)
		r.mu.Lock()
		if n := uint64(len(a.checked())); r.last != n {
			t.Errorf("saw %d of %d", r.last, n)
		}
		r.mu.Unlock()
		stop()
		wg.Wait()
	})
}

func TestARelayEndsWithItsLastFollower(t *testing.T) {
	together(t, 2, func(t *testing.T, f *cluster) {
		a, b := f.servers[0], f.servers[1]
		a.create(dormouse.Created{})
		a.mustPrompt("p", script("sleep 1h"))
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var wg sync.WaitGroup
		b.on(a).read(ctx, &wg)
		settle(time.Second)
		b.read(ctx, &wg)
		settle(time.Second)
		if n := f.relays.Load(); n != 1 {
			t.Errorf("%d relays for two followers", n)
		}
		stop()
		wg.Wait()
		settle(2 * time.Second)
		if n := f.relays.Load(); n != 0 {
			t.Errorf("%d relays for nobody", n)
		}
	})
}

func TestOnlyALoadedSessionIsFollowedForOthers(t *testing.T) {
	together(t, 1, func(t *testing.T, f *cluster) {
		a := f.servers[0]
		a.create(dormouse.Created{})
		if _, err := a.live.FollowHere(a.id, 0); err == nil {
			t.Error("it is not loaded")
		}
		a.mustPrompt("p", "hello")
		follower, err := a.live.FollowHere(a.id, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer follower.Close()
		var last uint64
		for {
			items, err := follower.Next(t.Context()) // until the idle actor is dropped
			if err != nil {
				break
			}
			for _, i := range items {
				last = max(last, i.Event.Seq)
			}
		}
		if n := uint64(len(a.log())); last != n {
			t.Errorf("saw %d of %d", last, n)
		}
	})
}

var _ fleet.Peers = (*cluster)(nil)
