package peer_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/door/peer"
	"github.com/dormouse-run/dormouse/session/fleet"
	"github.com/dormouse-run/dormouse/session/law"
)

func TestACommandReachesTheServerThatHasTheSession(t *testing.T) {
	p := newPair(t)
	id := p.create()
	for i := range 20 {
		if err := p.b.Do(t.Context(), id, ada, prompt(id, fmt.Sprint("p", i), `SCRIPT[{"text":"ok"}]`)); err != nil {
			t.Fatal(err)
		}
	}
	if n := p.a.dials.Load(); n != 1 {
		t.Errorf("%d connections for 20 commands in a row", n)
	}
	if c := p.b.Counts(); c.Forwarded != 20 {
		t.Errorf("counted %+v", c)
	}
	prompts, err := p.b.Prompts(t.Context(), id)
	if err != nil || len(prompts) != 20 {
		t.Errorf("%d prompts, %v", len(prompts), err)
	}
}

func TestAPromptThatWasRecordedBeforeIsKnownOnTheOtherSide(t *testing.T) {
	p := newPair(t)
	id := p.create()
	hello := prompt(id, "p", "hello")
	for i := range 2 {
		again, err := p.b.Once(t.Context(), id, ada, hello)
		if err != nil || again != (i > 0) {
			t.Errorf("time %d: again %v, %v", i+1, again, err)
		}
	}
	if err := p.b.Do(t.Context(), id, ada, hello); err != nil {
		t.Errorf("who only wants it recorded is told %v", err)
	}
	if n := p.b.Counts().Forwarded; n != 3 {
		t.Errorf("%d commands were put to the other server", n)
	}
}

func TestARefusalIsTheSameOnTheOtherSide(t *testing.T) {
	p := newPair(t)
	id := p.create()
	for name, c := range map[string]struct {
		verb law.Verb
		want error
	}{
		"invalid":   {law.Prompt{ID: "sevt_x"}, dormouse.ErrInvalid},
		"conflict":  {law.Retry{}, dormouse.ErrConflict},
		"not found": {law.Cancel{Prompt: "sevt_x"}, dormouse.ErrNotFound},
		"too large": {prompt(id, "big", strings.Repeat("x", dormouse.MaxContent+1)), dormouse.ErrTooLarge},
	} {
		here := p.a.Do(t.Context(), id, ada, c.verb)
		there := p.b.Do(t.Context(), id, ada, c.verb)
		if !errors.Is(here, c.want) || !errors.Is(there, c.want) || here.Error() != there.Error() {
			t.Errorf("%s: here %v, there %v", name, here, there)
		}
	}
	if err := p.b.Do(t.Context(), id, ada, law.Terminate{Reason: "enough"}); err != nil {
		t.Fatal(err)
	}
	if err := p.b.Do(t.Context(), id, ada, law.Wake{}); !errors.Is(err, dormouse.ErrTerminated) {
		t.Errorf("after its end: %v", err)
	}
	if err := p.b.client.Do(t.Context(), p.route(), id, ada, law.Tick{}); !errors.Is(err, dormouse.ErrInvalid) {
		t.Errorf("a verb that only an actor may use: %v", err)
	}
}

func TestFollowersOfAnotherServerSeeEventsAndDeltas(t *testing.T) {
	p := newPair(t)
	id := p.create()
	ctx, stop := context.WithCancel(t.Context())
	f, err := p.b.Follow(ctx, id, 0)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var deltas, large string
	var last uint64
	var done sync.WaitGroup
	done.Go(func() {
		defer f.Close()
		for {
			items, err := f.Next(ctx)
			if err != nil {
				return
			}
			mu.Lock()
			for _, i := range items {
				switch {
				case i.Delta != nil:
					deltas += i.Delta.Text
				case i.Event.Seq != last+1:
					t.Errorf("event %d after %d", i.Event.Seq, last)
					fallthrough
				default:
					last = i.Event.Seq
					if strings.Contains(string(i.Event.Payload), "xxxx") && i.Event.Type == dormouse.UserMessage {
						large = string(i.Event.Payload)
					}
				}
			}
			mu.Unlock()
		}
	})
	time.Sleep(200 * time.Millisecond) // so that there is a relay
	if err := p.b.Do(t.Context(), id, ada, prompt(id, "p", `SCRIPT[{"text":"the words come one by one","chunks":20,"chunk_delay_ms":20}]`)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the words streamed", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return strings.Contains(deltas, "words come one by")
	})
	if err := p.b.Do(t.Context(), id, ada, prompt(id, "q", strings.Repeat("x", 1<<20)+` SCRIPT[{"text":"ok"}]`)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "everything seen", func() bool {
		row, err := p.a.Row(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		defer mu.Unlock()
		return row.Phase == dormouse.PhaseReady && len(large) > 1<<20 && last == row.Seq
	})
	stop()
	done.Wait()
}

func TestOnlyAServerOfTheSameStoreIsAnswered(t *testing.T) {
	p := newPair(t)
	id := p.create()
	stranger := peer.NewClient([]byte("another key"), p.b.FleetNow, p.log)
	defer stranger.Close()
	if err := stranger.Do(t.Context(), p.route(), id, ada, law.Wake{}); !errors.Is(err, fleet.ErrUnreached) {
		t.Errorf("a stranger: %v", err)
	}
	if _, err := stranger.Who(t.Context(), p.route()); !errors.Is(err, fleet.ErrUnreached) {
		t.Errorf("a stranger who asks who is there: %v", err)
	}
	old := p.route()
	old.To.Incarnation += 100
	if err := p.b.client.Do(t.Context(), old, id, ada, law.Wake{}); !errors.Is(err, fleet.ErrUnreached) {
		t.Errorf("for another incarnation: %v", err)
	}
	if err := p.b.client.Follow(t.Context(), old, id, 0, nil); !errors.Is(err, fleet.ErrUnreached) {
		t.Errorf("following another incarnation: %v", err)
	}
	if who, err := p.b.client.Who(t.Context(), old); !errors.Is(err, fleet.ErrUnreached) {
		t.Errorf("asked whether another incarnation is there: %v, %v", who, err)
	}
	zeros := strings.Repeat("00", 32)
	const n16 = "00000000000000000000000000000000"
	for name, header := range map[string]string{
		"no signature":       "",
		"another scheme":     "Bearer x",
		"half a signature":   "Dormouse 2.1.2",
		"an older version":   "Dormouse 1.2." + zeros + "." + zeros,
		"a later version":    "Dormouse 3.1.2.3." + n16 + "." + zeros + "." + zeros,
		"no numbers":         "Dormouse 2.a.b.c." + n16 + "." + zeros + "." + zeros,
		"an empty one":       "Dormouse 2.1.2.3." + n16 + "." + zeros + ".",
		"no digest":          "Dormouse 2.1.2.3." + n16 + ".." + zeros,
		"no nonce":           "Dormouse 2.1.2.3.." + zeros + "." + zeros,
		"a long nonce":       "Dormouse 2.1.2.3." + n16 + "00." + zeros + "." + zeros,
		"a long digest":      "Dormouse 2.1.2.3." + n16 + "." + zeros + zeros + "." + zeros,
		"a made-up one":      "Dormouse 2.1.2.3." + n16 + "." + zeros + "." + zeros,
		"not hexadecimal":    "Dormouse 2.1.2.3." + n16 + "." + zeros + "." + strings.Repeat("xy", 32),
		"a very long one":    "Dormouse 2.1.2.3." + n16 + "." + zeros + "." + strings.Repeat("00", 3000),
		"too many parts":     "Dormouse 2.1.2.3." + n16 + "." + zeros + "." + zeros + ".00",
		"a negative number":  "Dormouse 2.-1.2.3." + n16 + "." + zeros + "." + zeros,
		"a time out of hand": "Dormouse 2.1.2.99999999999999999999." + n16 + "." + zeros + "." + zeros,
	} {
		for _, path := range []string{"do", "follow", "who", "ask", "open"} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.a.http.URL+peer.Prefix+path, strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", header)
			res, err := p.a.http.Client().Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = res.Body.Close()
			if res.StatusCode != http.StatusUnauthorized || res.Header.Get("Dormouse-Answer") != "" {
				t.Errorf("%s at %s: %s, %q", name, path, res.Status, res.Header.Get("Dormouse-Answer"))
			}
		}
	}
	if who, err := p.b.client.Who(t.Context(), p.route()); err != nil || who.Addr != p.a.http.Listener.Addr().String() {
		t.Errorf("who is there: %v, %v", who, err)
	}
}

// A stranger could make a server keep as many bodies as there are connections.
func TestWhatAStrangerSendsIsNotRead(t *testing.T) {
	p := newPair(t)
	c, err := net.Dial("tcp", p.a.http.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	zeros := strings.Repeat("00", 32)
	_, err = fmt.Fprintf(c, "POST %sdo HTTP/1.1\r\nHost: a\r\nContent-Length: 30000000\r\nAuthorization: Dormouse 2.1.1.1.%s.%s.%s\r\n\r\n{", peer.Prefix, zeros[:32], zeros, zeros)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	status, err := bufio.NewReader(c).ReadString('\n')
	if err != nil || !strings.Contains(status, "401") {
		t.Errorf("before its body has come it is answered %q, %v", status, err)
	}
}

// A server that has lost its lease is refused by every server: its requests may arrive
// long after others have taken over.
func TestAServerWithoutALeaseIsRefusedByThoseItAsks(t *testing.T) {
	p := newPair(t)
	id := p.create()
	r := p.route()
	if err := p.b.client.Do(t.Context(), r, id, ada, prompt(id, "p", "hello")); err != nil {
		t.Fatal(err)
	}
	r.From.Incarnation += 1000 // which has never had one
	err := p.b.client.Do(t.Context(), r, id, ada, prompt(id, "q", "hello"))
	if !errors.Is(err, fleet.ErrStaleSender) && !errors.Is(err, fleet.ErrUnreached) {
		t.Errorf("it was told %v", err)
	}
	prompts, err := p.a.Prompts(t.Context(), id)
	if err != nil || len(prompts) != 1 {
		t.Errorf("%d prompts, %v", len(prompts), err)
	}
}
