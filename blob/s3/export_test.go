package s3

import "time"

// SetGrace says how long whoever collects may take.
func (s *Store) SetGrace(d time.Duration) { s.grace = d }
