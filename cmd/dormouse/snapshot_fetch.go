package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/spf13/cobra"

	"github.com/dormouse-run/dormouse/session/feed"
)

// fetching asks a session for what may need files from elsewhere. Somebody who
// watches is told how far they are.
func fetching(cmd *cobra.Command, id, what string, in, out any) (raw []byte, err error) {
	c, err := connect(cmd)
	if err != nil {
		return nil, err
	}
	var far atomic.Pointer[feed.Fetched]
	ctx, stop := context.WithCancel(cmd.Context())
	var following sync.WaitGroup
	defer following.Wait()
	defer stop()
	if isTerminal(cmd.ErrOrStderr()) {
		following.Go(func() { followFetch(ctx, cmd, c, id, &far) })
	}
	attended(cmd, func() string { return fetchedSoFar(far.Load()) }, func() {
		raw, err = c.wait(cmd.Context(), http.MethodPost, sessionPath(id, what), in, out)
	})
	return raw, err
}

// fetchedSoFar says how far it is, if that is known.
func fetchedSoFar(f *feed.Fetched) string {
	if f == nil || f.Of == 0 {
		return "fetching the snapshot"
	}
	return fmt.Sprintf("fetching the snapshot, %s of %s", size(f.Bytes), size(f.Of))
}

// followFetch notes how far a session is with fetching files. Whatever goes wrong, all
// there is to lose is what is shown meanwhile.
func followFetch(ctx context.Context, cmd *cobra.Command, c *client, id string, far *atomic.Pointer[feed.Fetched]) {
	var now struct {
		Seq uint64 `json:"seq"`
	}
	if _, err := c.call(ctx, http.MethodGet, sessionPath(id), nil, &now); err != nil {
		return
	}
	_, _ = followOnce(ctx, cmd, id, &following{after: now.Seq, deltas: true}, func(f frame) (bool, error) {
		var d feed.Delta
		if f.Event == "delta" && json.Unmarshal(f.Data, &d) == nil && d.Fetched != nil {
			far.Store(d.Fetched)
		}
		return false, nil
	})
}
