package runner

import (
	"context"
	"fmt"
	"time"

	"github.com/dormouse-run/dormouse"
)

// Usage is what goes on in a sandbox, as far as its runner sees it: everything
// that was started in it, and not the runner itself.
type Usage struct {
	Processes int `json:"processes"`
	// RSS is the bytes of memory they hold; shared ones count for each.
	RSS int64 `json:"rss"`
	// CPU is the time that the living and the dead have used.
	CPU time.Duration `json:"cpu"`
	// Ops, Tasks and Terminals count what runs.
	Ops       int `json:"ops"`
	Tasks     int `json:"tasks"`
	Terminals int `json:"terminals"`
	// Shells counts the processes that are shells with nothing to do.
	Shells int `json:"shells,omitempty"`
	// Active is when an op, a terminal or a port last did something; zero if none
	// ever did. It is by the clock of the sandbox.
	Active time.Time `json:"active"`
}

// Usage asks what goes on.
func (l *Link) Usage(ctx context.Context) (Usage, error) {
	f, err := l.request(ctx, Frame{Kind: KindUsage}, nil)
	if err == nil && f.Usage == nil {
		err = fmt.Errorf("runner sent no usage: %w", dormouse.ErrInvalid)
	}
	if err != nil {
		return Usage{}, fmt.Errorf("ask for usage: %w", err)
	}
	return *f.Usage, nil
}
