package main

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/client"
)

// What the bench asks of snapshots.

// snapshot takes one of a session's workspace, and returns once it is recorded.
func (s *server) snapshot(ctx context.Context, session string) (string, error) {
	var taken struct {
		Snapshot string `json:"snapshot"`
	}
	err := s.call(ctx, http.MethodPost, "/api/sessions/"+session+"/snapshots", map[string]any{}, &taken)
	return taken.Snapshot, err
}

// restore goes back to the files of a snapshot.
func (s *server) restore(ctx context.Context, session, snapshot string) error {
	return s.call(ctx, http.MethodPost, "/api/sessions/"+session+"/restore", map[string]any{"snapshot": snapshot}, nil)
}

// branch makes a session that goes on from a snapshot.
func (s *server) branch(ctx context.Context, session, snapshot string) (string, error) {
	var made struct {
		Session string `json:"session"`
	}
	err := s.call(ctx, http.MethodPost, "/api/sessions/"+session+"/branch", map[string]any{"snapshot": snapshot}, &made)
	return made.Session, err
}

// reads gets a file of a session's workspace, which has to begin as expected.
func (s *server) reads(ctx context.Context, session, file, want string) error {
	raw, err := s.ask(ctx, http.MethodGet, "/api/sessions/"+session+"/files?path="+file, nil)
	if err != nil {
		return err
	}
	from := tar.NewReader(bytes.NewReader(raw))
	if _, err := from.Next(); err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	body, err := io.ReadAll(from)
	if err == nil && !strings.HasPrefix(string(body), want+"\n") {
		err = fmt.Errorf("%s begins %.40q and not %q", file, body, want)
	}
	return err
}

// putTree unpacks a tar in a session's workspace.
func (s *server) putTree(ctx context.Context, session, path string, tar io.Reader) error {
	_, err := s.api.PutFiles(ctx, dormouse.SessionID(session), path, client.Tar{Reader: tar})
	return err
}
