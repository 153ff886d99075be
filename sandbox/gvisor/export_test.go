//go:build linux

package gvisor

import (
	"errors"

	"github.com/dormouse-run/dormouse/runner"
)

// ClaimAndEnd leaves a spare as a server does that is killed when it has given it
// to a session, but not the session's files to it.
func (d *Driver) ClaimAndEnd(f runner.Fence) error {
	s := d.claim()
	if s == nil {
		return errors.New("there is no spare")
	}
	defer s.close()
	return d.volumeOf(f.Session).writeRecord(record{Generation: f.Generation, Box: s.box.id})
}
