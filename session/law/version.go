package law

import "github.com/dormouse-run/dormouse"

// Readable refuses events of which one is of a newer program. The row of their session
// should have said so.
func Readable(id dormouse.SessionID, events []dormouse.Event) error {
	for _, e := range events {
		if needs := e.Type.Version(); needs > dormouse.LogVersion {
			return &dormouse.NewerLogError{Session: id, Needs: needs, Type: e.Type}
		}
	}
	return nil
}

// Foldable refuses a state that a newer program has folded and cached.
func Foldable(id dormouse.SessionID, s State) error {
	if s.Needs > dormouse.LogVersion {
		return &dormouse.NewerLogError{Session: id, Needs: s.Needs}
	}
	return nil
}
