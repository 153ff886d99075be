package transfer_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
	"github.com/dormouse-run/dormouse/store/transfer"
)

func TestAHoldThatIsLostEndsTheCommand(t *testing.T) {
	t.Parallel()
	s := new(lost)
	held, release, err := transfer.Hold(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-held.Done():
	case <-time.After(2 * transfer.HoldLease):
		t.Fatal("nobody noticed")
	}
	if err := context.Cause(held); !errors.Is(err, dormouse.ErrLeaseLost) {
		t.Errorf("ended with %v", err)
	}
	if err := release(); err != nil {
		t.Error(err)
	}
}

// lost is a fleet that cannot be renewed: at first for no good reason, then
// because the lease is over.
type lost struct {
	store.Fleet
	renewed int
}

func (*lost) Servers(context.Context) ([]store.Server, error) { return nil, nil }
func (*lost) Leave(context.Context) error                     { return nil }

func (*lost) Join(_ context.Context, s store.Server, _ time.Duration) (store.Server, error) {
	return s, nil
}

func (l *lost) Renew(context.Context) error {
	if l.renewed++; l.renewed == 1 {
		return errors.New("the network is away")
	}
	return dormouse.ErrLeaseLost
}
