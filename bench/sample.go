package main

import (
	"slices"
	"time"
)

// sample is how long something took, each time.
type sample []time.Duration

// quantile returns the value that a share q of the sample does not exceed.
func (s *sample) quantile(q float64) time.Duration {
	if len(*s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(*s))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

func (s *sample) least() time.Duration { return s.quantile(0) }

func (s *sample) median() time.Duration { return s.quantile(0.5) }

// timed adds how long f takes.
func (s *sample) timed(f func() error) error {
	began := time.Now()
	if err := f(); err != nil {
		return err
	}
	*s = append(*s, time.Since(began))
	return nil
}
