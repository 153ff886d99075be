package scripted

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/model"
)

// Count is what happened to requests.
type Count struct {
	// Requests were received, sound or not.
	Requests int `json:"requests"`
	// Replies reached their end.
	Replies int `json:"replies"`
	// Effects are calls that were executed, each of them billed once: not those
	// refused, failed, kept hanging or answered from an earlier one.
	Effects int `json:"effects"`
}

// Calls is the record of what was asked.
type Calls struct {
	Count
	// Refused says why requests were invalid, the latest few of them.
	Refused []string `json:"refused"`
	// Keys counts by idempotency key.
	Keys map[string]Count `json:"keys"`
}

const maxRefused = 100

// stage is where requests become performances, and where they are counted.
type stage struct {
	keyed bool

	mu    sync.Mutex // guards all below
	calls Calls
	// struck counts the faults met so far, by prompt and step: the one thing
	// that does not follow from a transcript.
	struck  map[string]int
	entries map[string]*entry
}

// entry is a call that was executed under a key.
type entry struct {
	request     string
	performance performance
	done        chan struct{}
}

func newStage(o Options) *stage {
	return &stage{
		keyed:   o.Keyed,
		calls:   Calls{Keys: make(map[string]Count)},
		struck:  make(map[string]int),
		entries: make(map[string]*entry),
	}
}

// begin counts a request and decides how it is answered. flaw is what is wrong
// with it beyond what r can show. The caller says with end that it is over, and
// whether the whole reply was given.
func (s *stage) begin(ctx context.Context, key string, r model.Request, flaw error) (p performance, end func(whole bool), err error) {
	if flaw == nil {
		flaw = check(r)
	}
	request := digestOf(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count(key, Count{Requests: 1})
	if flaw != nil {
		return performance{}, nil, s.refuse(flaw)
	}
	if !s.keyed || key == "" {
		p, err = s.execute(key, r, request)
		return p, func(whole bool) { s.end(key, whole) }, err
	}
	if first, ok := s.entries[key]; ok {
		if first.request != request {
			return performance{}, nil, s.refuse(fmt.Errorf("idempotency key %q was used for another request: %w", key, dormouse.ErrInvalid))
		}
		if err := s.await(ctx, first.done); err != nil {
			return performance{}, nil, err
		}
		return first.performance.smooth(), func(whole bool) { s.end(key, whole) }, nil
	}
	p, err = s.execute(key, r, request)
	if err != nil || p.hang {
		return p, func(bool) {}, err
	}
	mine := &entry{request: request, performance: p, done: make(chan struct{})}
	s.entries[key] = mine
	return p, func(whole bool) { s.end(key, whole); close(mine.done) }, nil
}

// await gives up the lock until done.
func (s *stage) await(ctx context.Context, done <-chan struct{}) error {
	s.mu.Unlock()
	defer s.mu.Lock()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// execute finds the answer in the script, and whether this time a fault comes
// before it.
func (s *stage) execute(key string, r model.Request, request string) (performance, error) {
	pos, err := locate(r.Messages)
	if err != nil {
		return performance{}, s.refuse(err)
	}
	p := perform(r, pos, request)
	if pos.step.faulty() {
		if !s.strikes(pos) {
			p = p.sound()
		} else if pos.step.Error != 0 {
			return performance{}, &fault{
				status:     pos.step.Error,
				retryAfter: time.Duration(pos.step.RetryAfterMS) * time.Millisecond,
				err:        errors.New("scripted " + strconv.Itoa(pos.step.Error)),
			}
		}
	}
	if !p.hang {
		s.count(key, Count{Effects: 1})
	}
	return p, nil
}

// strikes counts a fault and reports whether it still happens.
func (s *stage) strikes(pos position) bool {
	times := pos.step.Times
	if times == 0 {
		if pos.step.Error != 0 || pos.step.Hang {
			return true
		}
		times = 1
	}
	place := dormouse.DigestOf([]byte(strconv.Itoa(pos.number) + " " + pos.prompt))
	s.struck[string(place)]++
	return s.struck[string(place)] <= times
}

func (s *stage) end(key string, whole bool) {
	if !whole {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count(key, Count{Replies: 1})
}

func (s *stage) count(key string, c Count) {
	add := func(d Count) Count {
		return Count{d.Requests + c.Requests, d.Replies + c.Replies, d.Effects + c.Effects}
	}
	s.calls.Count = add(s.calls.Count)
	if key != "" {
		s.calls.Keys[key] = add(s.calls.Keys[key])
	}
}

func (s *stage) refuse(err error) error {
	s.calls.Refused = append(s.calls.Refused, err.Error())
	if n := len(s.calls.Refused); n > maxRefused {
		s.calls.Refused = slices.Clone(s.calls.Refused[n-maxRefused:])
	}
	if f, ok := errors.AsType[*fault](err); ok {
		return f
	}
	return &fault{status: http.StatusBadRequest, err: err}
}

func (s *stage) snapshot() Calls {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.calls
	c.Refused = slices.Clone(c.Refused)
	c.Keys = maps.Clone(c.Keys)
	return c
}

// check refuses what the provider would.
func check(r model.Request) error {
	if r.Model == "" {
		return fmt.Errorf("model is missing: %w", dormouse.ErrInvalid)
	}
	seen := make(map[string]bool)
	for i, t := range r.Tools {
		if t.Name == "" || seen[t.Name] {
			return fmt.Errorf("tools[%d].name %q is missing or not unique: %w", i, t.Name, dormouse.ErrInvalid)
		}
		seen[t.Name] = true
		if !isObject(t.InputSchema) {
			return fmt.Errorf("tools[%d].input_schema is not an object: %w", i, dormouse.ErrInvalid)
		}
	}
	return model.ValidateTranscript(r.Messages)
}

func isObject(raw json.RawMessage) bool {
	var fields map[string]json.RawMessage
	return json.Unmarshal(raw, &fields) == nil && fields != nil
}
