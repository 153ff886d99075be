package transfer

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/sleep"
	"github.com/dormouse-run/dormouse/store"
)

const (
	// HoldLease is how long a store stays held after its holder was killed.
	HoldLease = 3 * time.Second
	// HoldPlace is the prefix of a holder's place. No server has such a place.
	HoldPlace = "aside/"
)

// Hold keeps servers from a store that they share, in the only way they know: as
// a server in a place of its own. It cannot join while another lives, and none
// can join while it does. The context ends if the store is lost to one after all.
func Hold(ctx context.Context, s store.Fleet) (_ context.Context, release func() error, err error) {
	if err := waitUnused(ctx, s); err != nil {
		return nil, nil, err
	}
	if _, err := s.Join(ctx, store.Server{Name: "dormouse store", Place: HoldPlace + rand.Text()}, HoldLease); err != nil {
		return nil, nil, err
	}
	held, lose := context.WithCancelCause(ctx)
	stop := make(chan struct{})
	var renewing sync.WaitGroup
	renewing.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(HoldLease / 3):
			}
			// Any other error is no loss: whatever keeps us from renewing keeps us from
			// writing.
			if err := s.Renew(held); errors.Is(err, dormouse.ErrLeaseLost) {
				lose(fmt.Errorf("the store was kept from servers for too long without a sign: %w", err))
				return
			}
		}
	})
	return held, func() error {
		close(stop)
		renewing.Wait()
		lose(nil)
		return s.Leave(context.WithoutCancel(ctx))
	}, nil
}

// waitUnused refuses a store that servers use. A command like this one that was killed
// is waited for: its hold ends by itself.
func waitUnused(ctx context.Context, s store.Fleet) error {
	for waited := time.Duration(0); ; waited += HoldLease / 10 {
		servers, err := s.Servers(ctx)
		if err != nil {
			return err
		}
		var names []string
		killed := true
		for _, other := range servers {
			names = append(names, other.Name)
			killed = killed && strings.HasPrefix(other.Place, HoldPlace)
		}
		switch {
		case len(names) == 0:
			return nil
		case !killed || waited > HoldLease:
			return fmt.Errorf("the store is in use by %s; stop it first: %w", strings.Join(names, ", "), dormouse.ErrConflict)
		}
		if err := sleep.For(ctx, HoldLease/10); err != nil {
			return err
		}
	}
}
