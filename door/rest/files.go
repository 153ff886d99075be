package rest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/visit"
)

const (
	// maxTree bounds the tar that may be put, and stalled how long either side may
	// take over a piece of one.
	maxTree = 64 << 30
	stalled = time.Minute
)

func copied(s visit.TreeStatus) Copied {
	return Copied{Files: s.Files, Bytes: s.Bytes, Changed: s.Changed}
}

// treePath reads which files are meant. Below the workspace is the usual place.
func treePath(c call) (url.Values, string, error) {
	q, err := c.query("path", "wake")
	if err != nil {
		return nil, "", err
	}
	path := q.Get("path")
	if path == "" {
		return nil, "", fmt.Errorf("parameter \"path\" says which file or directory: %w", dormouse.ErrInvalid)
	}
	return q, path, nil
}

func (s *Server) tree(c call) (*visit.Visit, string, error) {
	q, path, err := treePath(c)
	if err != nil {
		return nil, "", err
	}
	wake, err := wakeParam(q)
	if err != nil {
		return nil, "", err
	}
	v, err := s.visit(c, wake)
	return v, path, err
}

// getFiles streams a file, or a directory and all below it, as a tar. What goes
// wrong after the first byte cuts the answer off, so that no part of it looks complete.
func (s *Server) getFiles(c call) error {
	v, path, err := s.tree(c)
	if err != nil {
		return err
	}
	defer v.Close()
	out := &tarWriter{c: c, control: http.NewResponseController(c.W), trailer: TreeStatus}
	status, err := v.GetTree(c.R.Context(), path, out)
	switch {
	case err != nil && c.Status == 0:
		return err
	case err != nil:
		s.Logger.WarnContext(context.WithoutCancel(c.R.Context()), "files cut off", "request", c.ID, "error", err)
		panic(http.ErrAbortHandler)
	}
	out.begin() // a tar of nothing has no first byte
	b, err := json.Marshal(copied(status))
	if err != nil {
		return err
	}
	c.W.Header().Set(TreeStatus, string(b))
	return nil
}

// tarWriter answers with a tar, once there is something of it.
type tarWriter struct {
	c       call
	control *http.ResponseController
	trailer string // what comes after it, if anything does
}

func (t *tarWriter) begin() {
	if t.c.Status != 0 {
		return
	}
	h := t.c.W.Header()
	h.Set("Content-Type", "application/x-tar")
	if t.trailer != "" {
		h.Set("Trailer", t.trailer)
	}
	t.c.Status, t.c.Stream = http.StatusOK, true
	_ = t.control.SetReadDeadline(time.Time{})
	t.c.W.WriteHeader(http.StatusOK)
}

func (t *tarWriter) Write(b []byte) (int, error) {
	t.begin()
	_ = t.control.SetWriteDeadline(time.Now().Add(stalled))
	return t.c.W.Write(b)
}

// putFiles unpacks a tar below a directory, which is made if it is missing. It
// answers once everything is there.
func (s *Server) putFiles(c call) error {
	v, path, err := s.tree(c)
	if err != nil {
		return err
	}
	defer v.Close()
	c.Stream = true // it takes as long as its client
	control := http.NewResponseController(c.W)
	status, err := v.PutTree(c.R.Context(), path, &tarReader{body: http.MaxBytesReader(c.W, c.R.Body, maxTree), control: control})
	_ = control.SetWriteDeadline(time.Now().Add(stalled))
	if err != nil {
		return explainBody(err, "what came before may be there")
	}
	return c.Answer(http.StatusOK, copied(status))
}

// tarReader reads a body that may take its time, but not stand still.
type tarReader struct {
	body    io.Reader
	control *http.ResponseController
}

func (t *tarReader) Read(b []byte) (int, error) {
	_ = t.control.SetReadDeadline(time.Now().Add(stalled))
	n, err := t.body.Read(b)
	switch {
	case errors.Is(err, io.EOF):
		_ = t.control.SetReadDeadline(time.Time{}) // what is still to be done inside may take longer
	case err != nil:
		err = &bodyError{err}
	}
	return n, err
}

// bodyError is why a body could not be read.
type bodyError struct{ error }

func (e *bodyError) Unwrap() error { return e.error }

// explainBody is the error for a tar that could not be read from the client; left says
// what became of the part that was. Other errors stay as they are.
func explainBody(err error, left string) error {
	body, ok := errors.AsType[*bodyError](err)
	if !ok {
		return err
	}
	if _, large := errors.AsType[*http.MaxBytesError](body); large {
		return fmt.Errorf("a tar is over %d bytes: %w", int64(maxTree), dormouse.ErrTooLarge)
	}
	return fmt.Errorf("the tar was cut off; %s: %w: %w", left, dormouse.ErrInvalid, body)
}
