//go:build linux

package snapshot

// Removed waits until what was discarded is removed.
func (s *Store) Removed() { s.removing.Wait() }
