package main

import (
	"fmt"
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

// timings is how long things took that are known by a name.
type timings map[string]*sample

// times adds how long f takes to what is known by a name, n times in a row.
func (t timings) times(name string, n int, f func() error) error {
	s := t[name]
	if s == nil {
		s = new(sample)
		t[name] = s
	}
	for range n {
		if err := s.timed(f); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	time.Sleep(moment) // let its work in the background finish
	return nil
}

func (t timings) forget() { clear(t) }

// median is how long something took as a number of a line.
func (t timings) median(name, as string) number { return took(as, t[name].median()) }

func (t timings) least(name, as string) number { return took(as, t[name].least()) }
