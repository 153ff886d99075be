package s3

import "time"

// SetGrace says how long a collector may take.
func (s *Store) SetGrace(d time.Duration) { s.grace = d }
