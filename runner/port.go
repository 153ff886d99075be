package runner

import (
	"context"
	"fmt"

	"github.com/dormouse-run/dormouse"
)

// MaxPorts bounds the ports a runner reports.
const MaxPorts = 1024

// PortStream is a connection to a port that something inside listens on.
type PortStream struct {
	Port uint16 `json:"port"`
}

// Port is a TCP port that something inside listens on.
type Port struct {
	Port uint16 `json:"port"`
	// Address is what it is bound to, such as 127.0.0.1 or ::.
	Address string `json:"address"`
	// PID and Command name the process that listens, if it is known.
	PID     int    `json:"pid,omitempty"`
	Command string `json:"command,omitempty"`
}

// Ports returns the listening ports, lowest first.
func (l *Link) Ports(ctx context.Context) ([]Port, error) {
	f, err := l.request(ctx, Frame{Kind: KindPorts}, nil)
	if err == nil && len(f.Ports) > MaxPorts {
		err = fmt.Errorf("runner reported %d: %w", len(f.Ports), dormouse.ErrInvalid)
	}
	if err != nil {
		return nil, fmt.Errorf("list ports: %w", err)
	}
	return f.Ports, nil
}
