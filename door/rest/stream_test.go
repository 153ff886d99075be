package rest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/door/rest"
)

func TestStreamShowsWhatThePagesShow(t *testing.T) {
	h := newServer(t)
	path := h.create(`{"prompt":"SCRIPT[{\"text\":\"one <two> & three\",\"chunks\":3}]"}`)
	h.rested(path)
	page := h.events(path, "?limit=1000")
	f := h.follow(path, "")
	for _, want := range page.Events {
		got := f.nextEvent()
		var e dormouse.Event
		if err := json.Unmarshal([]byte(got.data), &e); err != nil {
			t.Fatal(err)
		}
		if got.id != want.Seq || got.event != string(want.Type) || e.ID != want.ID || string(e.Payload) != string(want.Payload) {
			t.Errorf("streamed %+v, want %+v", got, want)
		}
	}
}

func TestDeltasComeOnlyWhenAskedForAndHaveNoCursor(t *testing.T) {
	h := newServer(t)
	path := h.create(`{"warm":false}`)
	with, without := h.follow(path, "&deltas=true"), h.follow(path, "")
	h.call(http.MethodPost, path+"/prompts", `{"content":"SCRIPT[{\"text\":\"one two three\",\"chunks\":10,\"chunk_delay_ms\":20}]"}`, http.StatusAccepted, nil)
	read := func(f *follower) (text string) {
		for {
			got := f.nextEvent()
			switch {
			case got.event == "delta":
				var d struct {
					Text string `json:"text"`
				}
				if err := json.Unmarshal([]byte(got.data), &d); err != nil || got.id != 0 {
					t.Errorf("delta %+v: %v", got, err)
				}
				text += d.Text
			case got.id == 0:
				t.Errorf("%s has no cursor", got.event)
			case got.event == string(dormouse.SessionStatusIdle):
				return text
			}
		}
	}
	if text := read(with); text == "" || !strings.Contains("one two three", text) { // some may be lost at either end
		t.Errorf("deltas say %q", text)
	}
	if text := read(without); text != "" {
		t.Errorf("deltas nobody asked for: %q", text)
	}
}

// Followers come and go while prompts are appended; each resumes with the last
// id it saw and must see every event once.
func TestFollowersThatReconnectSeeEveryEventOnce(t *testing.T) {
	h := newServer(t)
	path := h.create(`{}`)
	const prompts, followers = 30, 4
	var writing sync.WaitGroup
	for w := range 2 {
		writing.Go(func() {
			for i := range prompts / 2 {
				h.call(http.MethodPost, path+"/prompts", fmt.Sprintf(`{"content":"prompt %d of %d"}`, i, w), http.StatusAccepted, nil)
			}
		})
	}
	var reading sync.WaitGroup
	seen := make([][]uint64, followers)
	for n := range followers {
		reading.Go(func() {
			var cursor uint64
			idle := 0
			for visit := 0; idle < prompts; visit++ {
				query := fmt.Sprintf("&after=%d", cursor)
				if n%2 == 1 {
					query += "&all=true"
				}
				f := h.follow(path, query)
				for stay := 3 + (visit*7+n)%40; stay > 0 && idle < prompts; stay-- {
					got := f.nextEvent()
					if got.event == "behind" {
						break
					}
					if got.id <= cursor {
						t.Errorf("follower %d at %d was given %d", n, cursor, got.id)
					}
					cursor = got.id
					seen[n] = append(seen[n], got.id)
					if got.event == string(dormouse.SessionStatusIdle) {
						idle++
					}
				}
				f.stop()
			}
		})
	}
	writing.Wait()
	reading.Wait()
	for n := range followers {
		query := "?limit=1000"
		if n%2 == 1 {
			query += "&all=true"
		}
		var want []uint64
		for after, more := uint64(0), true; more; {
			p := h.events(path, fmt.Sprintf("%s&after=%d", query, after))
			for _, e := range p.Events {
				want = append(want, e.Seq)
			}
			after, more = p.Next, p.More
		}
		got := seen[n]
		if len(got) > len(want) {
			t.Fatalf("follower %d saw %d of %d events", n, len(got), len(want))
		}
		for i := range got {
			if got[i] != want[i] {
				t.Fatalf("follower %d: event %d is %d, want %d", n, i, got[i], want[i])
			}
		}
	}
}

func TestLastEventIDResumes(t *testing.T) {
	h := newServer(t)
	path := h.create(`{"prompt":"hello"}`)
	h.rested(path)
	page := h.events(path, "?limit=1000")
	third := page.Events[2].Seq
	r := h.request(http.MethodGet, path+"/events?after=1", nil)
	r.Header.Set("Accept", "text/event-stream")
	r.Header.Set("Last-Event-ID", fmt.Sprint(third))
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	res, err := h.http.Do(r.WithContext(ctx))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	buffer := make([]byte, 4096)
	var text string
	for !strings.Contains(text, "id: ") {
		n, err := res.Body.Read(buffer)
		if err != nil {
			t.Fatal(err)
		}
		text += string(buffer[:n])
	}
	if want := fmt.Sprintf("id: %d\n", page.Events[3].Seq); !strings.Contains(text, want) {
		t.Errorf("resumed with %q, want %q", text, want)
	}
}

func TestSilentStreamSaysThatItLives(t *testing.T) {
	h := newServer(t, func(c *rest.Config) { c.KeepAlive = 20 * time.Millisecond })
	f := h.follow(h.create(`{"warm":false}`), "")
	for comments := 0; comments < 3; {
		got, ok := f.next()
		if !ok {
			t.Fatal("the stream ended")
		}
		if got.event == "" {
			comments++
		}
	}
}

func TestStreamEndsWithItsClient(t *testing.T) {
	h := newServer(t)
	path := h.create(`{"warm":false}`)
	f := h.follow(path, "")
	if n := h.door.Followers(); n != 1 {
		t.Errorf("%d followers", n)
	}
	f.stop()
	for deadline := time.Now().Add(5 * time.Second); h.door.Followers() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the stream outlives its client")
		}
	}
}

func TestClosingServerTellsFollowersWhereTheyStand(t *testing.T) {
	h := newServer(t)
	path := h.create(`{"prompt":"hello"}`)
	h.rested(path)
	last := h.show(path).Seq
	f := h.follow(path, "&all=true")
	for f.nextEvent().id < last {
	}
	h.sessions.EndFollowers()
	got := f.nextEvent()
	if want := fmt.Sprintf(`{"cursor":%d}`, last); got.event != "closing" || got.data != want || got.id != 0 {
		t.Errorf("told %+v, want closing %s", got, want)
	}
	if _, more := f.next(); more {
		t.Error("the stream goes on")
	}
	h.refuses(h.request(http.MethodGet, path+"/events?follow=true", nil), http.StatusServiceUnavailable, "shutting down")
}

// One client stops reading while a session pours out more than any buffer
// holds; it is cut off, and the other sees everything.
func TestReaderThatStallsIsCutOffAlone(t *testing.T) {
	h := newServer(t, func(c *rest.Config) { c.WriteTimeout = 300 * time.Millisecond })
	path := h.create(`{"warm":false,"prompt":"SCRIPT[{\"hang\":true}]"}`) // what comes after it waits
	stalled := stall(t, h, path)
	well := h.follow(path, "")
	text := strings.Repeat("x", 16<<10)
	const prompts = 60
	var writing sync.WaitGroup
	writing.Go(func() {
		for i := range prompts {
			h.call(http.MethodPost, path+"/prompts", fmt.Sprintf(`{"content":"%d %s"}`, i, text), http.StatusAccepted, nil)
		}
	})
	messages := -1 // the first is not one of ours
	for messages < prompts {
		got := well.nextEvent()
		if got.event == "behind" {
			t.Fatal("the reader that reads was cut off")
		}
		if got.event == string(dormouse.PromptQueued) {
			messages++
		}
	}
	writing.Wait()
	for deadline := time.Now().Add(10 * time.Second); h.door.Followers() > 1; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the stalled reader still holds its stream")
		}
	}
	stalled.Close()
}

// stall follows over a connection of its own and never reads.
func stall(t *testing.T, h *testServer, path string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(h.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetReadBuffer(4096)
	}
	if _, err := fmt.Fprintf(c, "GET %s/events?follow=true HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n", path, h.token); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(5 * time.Second); h.door.Followers() < 1; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nobody follows")
		}
	}
	return c
}

// A reader that is slow but reads is not a reader that stalls: one event may be
// as large as a prompt, and cut off in the middle of it the reader would come
// back to the same event for ever.
func TestSlowReaderGetsALargeEvent(t *testing.T) {
	// A busy machine may keep the reader itself from reading in time. With more
	// time for each piece it reads the more slowly, so the whole always takes
	// several times as long as a piece may.
	for within := 300 * time.Millisecond; ; within *= 2 {
		err := readSlowly(t, within)
		if err == nil {
			return
		}
		if within > 2*time.Second {
			t.Fatalf("cut off: %v", err)
		}
	}
}

// readSlowly follows a session with a large event, a piece at a time, over a
// server that lets a reader take so long for a piece.
func readSlowly(t *testing.T, within time.Duration) error {
	t.Helper()
	h := newServer(t, func(c *rest.Config) { c.WriteTimeout = within })
	path := h.create(`{"warm":false,"prompt":"SCRIPT[{\"hang\":true}]"}`)
	slow := stall(t, h, path)
	defer slow.Close()
	if tcp, ok := slow.(*net.TCPConn); ok {
		_ = tcp.SetReadBuffer(64 << 10)
	}
	h.call(http.MethodPost, path+"/prompts", `{"content":"`+strings.Repeat("x", 4<<20)+`the end"}`, http.StatusAccepted, nil)
	var seen []byte
	buffer := make([]byte, 32<<10)
	for !strings.Contains(string(seen), "the end") {
		n, err := slow.Read(buffer)
		if err != nil {
			return err
		}
		seen = append(seen[max(0, len(seen)-10):], buffer[:n]...)
		time.Sleep(within / 30)
	}
	return nil
}
