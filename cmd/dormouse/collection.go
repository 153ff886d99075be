//go:build !windows

package main

import (
	"context"
	"time"

	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/internal/sleep"
)

// collectEvery is how often blobs and images that no session names any more are
// looked for.
const collectEvery = time.Hour

// collect removes them, for the first time a while after the start, when a server has
// sessions to load.
func (s *server) collect(ctx context.Context) {
	for {
		if sleep.For(ctx, crash.Every("DORMOUSE_COLLECT_EVERY", collectEvery)) != nil {
			return
		}
		n, err := s.sessions.Collect(ctx)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			s.log.WarnContext(ctx, "blobs not collected", "error", err)
		case n > 0:
			s.log.InfoContext(ctx, "blobs collected", "blobs", n)
		}
		n, err = s.sessions.SweepLayers(ctx)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			s.log.WarnContext(ctx, "layers not collected", "error", err)
		case n > 0:
			s.log.InfoContext(ctx, "layers collected", "layers", n)
		}
		if d, ok := s.driver.(interface{ CollectImages(context.Context) error }); ok {
			if err := s.sessions.Under(ctx, d.CollectImages); err != nil && ctx.Err() == nil {
				s.log.WarnContext(ctx, "images not collected", "error", err)
			}
		}
	}
}
