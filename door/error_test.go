package door_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/door"
)

func TestEveryErrorHasItsReply(t *testing.T) {
	for name, c := range map[string]struct {
		err    error
		status int
		kind   string
	}{
		"not found":       {dormouse.ErrNotFound, 404, "not_found"},
		"invalid":         {dormouse.ErrInvalid, 400, "invalid"},
		"too large":       {dormouse.ErrTooLarge, 413, "too_large"},
		"conflict":        {dormouse.ErrConflict, 409, "conflict"},
		"terminated":      {dormouse.ErrTerminated, 409, "terminated"},
		"full":            {dormouse.ErrFull, 507, "full"},
		"unknown outcome": {dormouse.ErrUnknownOutcome, 503, "unknown_outcome"},
		"lease lost":      {dormouse.ErrLeaseLost, 503, "lease_lost"},
		"unavailable":     {dormouse.ErrUnavailable, 503, "unavailable"},
		"closing":         {dormouse.ErrClosing, 503, "closing"},
		"behind":          {dormouse.ErrBehind, 503, "behind"},
		"a client gone":   {context.Canceled, 499, "client_left"},
		"anything else":   {errors.New("password is swordfish"), 500, "internal"},
		"a refusal":       {&door.Refusal{Status: http.StatusTeapot, Type: "tea", Message: "short and stout"}, 418, "tea"},
		"in doubt, it is the doubt that counts": {
			errors.Join(dormouse.ErrConflict, dormouse.ErrUnknownOutcome), 503, "unknown_outcome",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := door.ReplyTo(fmt.Errorf("while testing: %w", c.err))
			if got.Status != c.status || got.Type != c.kind || got.Message == "" {
				t.Errorf("got %+v, want %d %s", got, c.status, c.kind)
			}
			if strings.Contains(got.Message, "swordfish") {
				t.Errorf("the log's text was told: %s", got.Message)
			}
		})
	}
}

func TestAnErrorIsTheSameOnTheOtherSide(t *testing.T) {
	for _, want := range []error{
		dormouse.ErrNotFound, dormouse.ErrInvalid, dormouse.ErrTooLarge, dormouse.ErrConflict, dormouse.ErrTerminated,
		dormouse.ErrFull, dormouse.ErrUnknownOutcome, dormouse.ErrLeaseLost, dormouse.ErrUnavailable,
		dormouse.ErrClosing, dormouse.ErrBehind, context.Canceled,
	} {
		err := fmt.Errorf("while testing: %w", want)
		if got := door.RemoteError(door.ReplyTo(err).Type, err.Error()); !errors.Is(got, want) || got.Error() != err.Error() {
			t.Errorf("%v became %v", err, got)
		}
	}
	if got := door.RemoteError("internal", "swordfish"); got.Error() != "swordfish" || door.ReplyTo(got).Type != "internal" {
		t.Errorf("an error of no kind became %v", got)
	}
}
