package session

import (
	"context"
	"errors"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/law"
)

// Exec runs a command in a session's sandbox and returns how it ended. What it
// prints goes to out as it comes; some of that may be missing, the answer has
// it. If ctx ends first, the command runs on. One without an id is given a new
// one, and is known to be new.
func (s *Sessions) Exec(ctx context.Context, id dormouse.SessionID, by dormouse.Actor, ask dormouse.ExecAsk, out func(text string)) (dormouse.ExecAnswer, error) {
	drawn := ask.Exec == ""
	if drawn {
		ask.Exec = dormouse.EventID(NewID(dormouse.EventPrefix))
	}
	from, again, err := s.execFrom(ctx, id, ask, drawn)
	if err != nil {
		return dormouse.ExecAnswer{}, err
	}
	f, err := s.followFrom(ctx, id, from)
	if err != nil {
		return dormouse.ExecAnswer{}, err
	}
	defer func() { f.Close() }()
	if !again {
		if err := s.Do(ctx, id, by, law.Run{ExecAsk: ask, New: drawn}); err != nil {
			return dormouse.ExecAnswer{}, err
		}
	}
	for {
		items, err := f.Next(ctx)
		if errors.Is(err, dormouse.ErrBehind) { // it prints faster than anybody reads; the log has its end
			next, err := s.Follow(ctx, id, f.Cursor())
			if err != nil {
				return dormouse.ExecAnswer{}, err
			}
			f.Close()
			f = next
			continue
		}
		if err != nil {
			return dormouse.ExecAnswer{}, err
		}
		for _, i := range items {
			if i.Delta != nil {
				if i.Delta.Use == ask.Exec && out != nil {
					out(i.Delta.Text)
				}
				continue
			}
			if a, ok := answerTo(i.Event, ask.Exec); ok {
				return a, nil
			}
		}
	}
}

// execFrom is the seq after which a command's answer comes, and reports whether it was
// asked for before. Another command under the same id is refused.
func (s *Sessions) execFrom(ctx context.Context, id dormouse.SessionID, ask dormouse.ExecAsk, drawn bool) (seq uint64, again bool, err error) {
	if !s.seeState(ctx, id, func(state law.State) { seq = state.Seq }) {
		row, err := s.Row(ctx, id)
		if err != nil {
			return 0, false, err
		}
		seq = row.Seq
	}
	if drawn {
		return seq, false, nil
	}
	e, err := s.Given(ctx, id, string(ask.Exec))
	switch {
	case errors.Is(err, dormouse.ErrNotFound):
		return seq, false, nil
	case err == nil && !law.SameExec(e, ask):
		err = law.OtherRequest(string(ask.Exec))
	}
	return e.Seq, true, err
}

// seeState shows the state that a session's actor has, if there is one here, without
// reading the store.
func (s *Sessions) seeState(ctx context.Context, id dormouse.SessionID, see func(law.State)) bool {
	a := s.loadedActor(id)
	return a != nil && a.See(ctx, see) == nil
}

// answerTo reads the answer to a command, if e is that.
func answerTo(e dormouse.Event, id dormouse.EventID) (dormouse.ExecAnswer, bool) {
	if e.Type != dormouse.ExecAnswered && e.Type != dormouse.ExecRefused {
		return dormouse.ExecAnswer{}, false
	}
	a := law.Payload[dormouse.ExecAnswer](e)
	return a, a.Exec == id
}
