package hibernation

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/dormouse-run/dormouse/e2e/oracle"
)

// judge wakes every session, some at a time, and holds what is in it against what
// was promised. It leaves all of them asleep.
func (n *trial) judge(ctx context.Context) {
	fmt.Fprintf(n.Out, "naps: looking at %d sessions\n", len(n.sleepers))
	var looking sync.WaitGroup
	for _, s := range n.sleepers {
		if s.Session == nil {
			continue // the time was over before its turn came
		}
		looking.Go(func() {
			n.slots <- struct{}{}
			defer func() { <-n.slots }()
			if err := s.within(ctx, s.verdict); err != nil {
				n.add(oracle.Stuck, "%s %s: %v", s.Name, s.ID, err)
			}
		})
	}
	looking.Wait()
	for _, text := range n.fleet.Crashes() {
		n.add(oracle.Stuck, "%s", text)
	}
}

// verdict looks at one session, awake and at rest.
func (s *sleeper) verdict(ctx context.Context) error {
	if _, err := s.Idle(ctx); err != nil {
		return err
	}
	if err := s.look(ctx); err != nil {
		return err
	}
	records, err := s.copyOut(ctx)
	if err != nil {
		return err
	}
	if err := s.hibernate(ctx, false); err != nil {
		return err
	}
	if _, err := s.Idle(ctx); err != nil {
		return err
	}
	found, log, err := s.Judge(ctx)
	if err != nil {
		return err
	}
	s.trial.merge(s, found)
	s.trial.merge(s, evidence{Records: records, Writers: s.writers, Looks: s.looks, Log: log}.judge())
	b := readBoxes(log)
	s.trial.count(func(sum *Summary) {
		sum.Hibernated, sum.Woken, sum.Restored, sum.Reported = sum.Hibernated+b.hibernated, sum.Woken+b.woken, sum.Restored+b.restored, sum.Reported+b.reported
		sum.Records += strings.Count(string(records), "\n")
		sum.Commands, sum.Prompts = sum.Commands+len(s.Session.Asked()), sum.Prompts+len(s.Acks())
	})
	return nil
}

// copyOut takes the workspace out of the sandbox: the records are returned, and what
// commands left is put where the witness finds it.
func (s *sleeper) copyOut(ctx context.Context) ([]byte, error) {
	var text string
	if err := s.Get(ctx, s.Path("/files?path=."), &text); err != nil {
		return nil, fmt.Errorf("copy the workspace: %w", err)
	}
	var records []byte
	for in := tar.NewReader(strings.NewReader(text)); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return records, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read a copy of the workspace: %w", err)
		}
		b, err := io.ReadAll(in)
		if err != nil {
			return nil, fmt.Errorf("read a copy of the workspace: %w", err)
		}
		switch filepath.Base(h.Name) {
		case "records":
			records = b
		case filepath.Base(s.Witness.Lines()):
			dir := filepath.Join(s.trial.dir, "copies", s.Name)
			if err := os.MkdirAll(dir, 0o700); err != nil {
				return nil, err
			}
			if err := os.WriteFile(filepath.Join(dir, filepath.Base(h.Name)), b, 0o600); err != nil {
				return nil, err
			}
		}
	}
}
