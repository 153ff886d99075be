package main

import (
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/spf13/cobra"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/client"
)

// fetching is ask for requests that may have to fetch files. On a terminal it prints the
// progress.
func fetching[T any](cmd *cobra.Command, id dormouse.SessionID, do func(context.Context, *client.Client) (T, error), show func(io.Writer, T) error) error {
	return ask(cmd, func(ctx context.Context, c *client.Client) (answer T, err error) {
		var far atomic.Pointer[dormouse.Fetched]
		following, stop := context.WithCancel(cmd.Context())
		var follower sync.WaitGroup
		defer follower.Wait()
		defer stop()
		if isTerminal(cmd.ErrOrStderr()) {
			follower.Go(func() { followFetch(following, c, id, &far) })
		}
		attended(cmd, func() string { return fetchedSoFar(far.Load()) }, func() { answer, err = do(ctx, c) })
		return answer, err
	}, show)
}

// fetchedSoFar says how far it is, if that is known.
func fetchedSoFar(f *dormouse.Fetched) string {
	if f == nil || f.Of == 0 {
		return "fetching the snapshot"
	}
	return fmt.Sprintf("fetching the snapshot, %s of %s", size(f.Bytes), size(f.Of))
}

// followFetch updates how far a session is with fetching files. Errors are ignored, because
// only the display depends on it.
func followFetch(ctx context.Context, c *client.Client, id dormouse.SessionID, far *atomic.Pointer[dormouse.Fetched]) {
	now, err := c.Show(ctx, id)
	if err != nil {
		return
	}
	for e, err := range c.Follow(ctx, id, client.FollowOptions{After: now.Seq, Deltas: true, Once: true}) {
		if err == nil && e.Delta != nil && e.Delta.Fetched != nil {
			far.Store(e.Delta.Fetched)
		}
	}
}
