package runner

import (
	"context"
	"fmt"
	"time"

	"github.com/dormouse-run/dormouse"
)

// Usage is the resource usage of a sandbox as its runner measures it. It does not count
// the runner itself.
type Usage struct {
	Processes int `json:"processes"`
	// RSS is their resident memory in bytes; shared pages count for each process.
	RSS int64 `json:"rss"`
	// CPU is the CPU time of all processes, including those that have ended.
	CPU time.Duration `json:"cpu"`
	// Ops, Tasks and Terminals count those that run.
	Ops       int `json:"ops"`
	Tasks     int `json:"tasks"`
	Terminals int `json:"terminals"`
	// Shells counts the processes that are idle shells.
	Shells int `json:"shells,omitempty"`
	// Active is when an op, a terminal or a port was last active, by the clock of the
	// sandbox; zero if none ever was.
	Active time.Time `json:"active"`
}

// Usage returns the resource usage.
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
