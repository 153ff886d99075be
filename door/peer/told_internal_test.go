package peer

import (
	"errors"
	"fmt"
	"testing"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session"
)

func TestThatANameWasGivenToAnotherRequestIsToldAsThat(t *testing.T) {
	reply := replyTo(fmt.Errorf("send: %w", session.ErrOtherRequest))
	err := refusal{Type: reply.Type, Message: reply.Message}.error(session.Server{})
	if !errors.Is(err, session.ErrOtherRequest) || !errors.Is(err, dormouse.ErrConflict) {
		t.Errorf("it is told as %v", err)
	}
}
