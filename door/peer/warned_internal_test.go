package peer

import (
	"errors"
	"fmt"
	"testing"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/fleet"
	"github.com/dormouse-run/dormouse/session/law"
)

func TestThatANameWasGivenToAnotherRequestIsToldAsThat(t *testing.T) {
	reply := replyTo(fmt.Errorf("send: %w", law.ErrOtherRequest))
	err := refusal{Type: reply.Type, Message: reply.Message}.asError(fleet.Server{})
	if !errors.Is(err, law.ErrOtherRequest) || !errors.Is(err, dormouse.ErrConflict) {
		t.Errorf("it is told as %v", err)
	}
}
