package runner

import (
	"context"
	"fmt"

	"github.com/dormouse-run/dormouse"
)

// MaxVictims bounds the processes that are killed at once.
const MaxVictims = 64

// Victim is a process that was killed because the sandbox was out of memory.
type Victim struct {
	PID     int    `json:"pid"`
	Command string `json:"command"`
	// RSS is the bytes of memory it held.
	RSS int64 `json:"rss"`
	// Reported says that the result of an op will say so.
	Reported bool `json:"told,omitempty"`
}

// String describes the kill, as the result of an op does.
func (v Victim) String() string {
	return fmt.Sprintf("out of memory: process %d (%s), which held %d MiB, was killed", v.PID, v.Command, v.RSS>>20)
}

// Relieve is the sandbox's OOM killer: it makes the runner kill the processes that use
// the most memory, as few as free this many bytes and at least one. It returns once
// they are gone. The results of their ops say so. It returns dormouse.ErrNotFound if
// there is no process.
func (l *Link) Relieve(ctx context.Context, bytes int64) ([]Victim, error) {
	f, err := l.request(ctx, Frame{Kind: KindRelieve, Bytes: bytes}, nil)
	if err == nil && (len(f.Victims) == 0 || len(f.Victims) > MaxVictims) {
		err = fmt.Errorf("runner named %d processes: %w", len(f.Victims), dormouse.ErrInvalid)
	}
	if err != nil {
		return nil, fmt.Errorf("relieve the sandbox: %w", err)
	}
	return f.Victims, nil
}
