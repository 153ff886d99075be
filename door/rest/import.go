package rest

import (
	"context"
	"fmt"
	"io"
	"mime"
	"net/http"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/door"
	"github.com/dormouse-run/dormouse/session"
)

// importer imports container images as snapshots.
type importer interface {
	CreateFrom(ctx context.Context, by dormouse.Actor, c dormouse.Created, label string, image io.Reader) (session.Row, dormouse.SnapshotID, error)
	Import(ctx context.Context, id dormouse.SessionID, by dormouse.Actor, ask dormouse.SnapshotAsk, image io.Reader) (dormouse.Snapshot, error)
}

// maxImportSession bounds the parameters of a session that is created from an image.
const maxImportSession = 256 << 10

// importSession makes a session whose files are those of an image, which is the body.
// The parameter "session" is what the body of a create is.
func (s *Server) importSession(c call) error {
	q, err := c.query("id", "label", "session")
	if err != nil {
		return err
	}
	var req createRequest
	c.ReadsBody(&req)
	if said := q.Get("session"); len(said) > maxImportSession {
		return fmt.Errorf("parameter \"session\" is over %d bytes: %w", maxImportSession, dormouse.ErrTooLarge)
	} else if said != "" {
		if err := decodeJSON([]byte(said), &req); err != nil {
			return fmt.Errorf("parameter \"session\": %w", err)
		}
	}
	if !absent(req.Prompt) || req.PromptID != "" || req.Parent != "" {
		return fmt.Errorf("parameter \"session\": a session that is made of an image has no parent and no first prompt: %w", dormouse.ErrInvalid)
	}
	if err := checkName("id", q.Get("id")); err != nil {
		return err
	}
	ctx, cancel := c.Context()
	defer cancel()
	like, err := s.defaults(ctx, c, "")
	if err != nil {
		return err
	}
	made, err := s.complete(req, like)
	if err != nil {
		return err
	}
	made.Tenant, made.Owner = c.Who.Tenant, c.Who.Actor
	if name := q.Get("id"); name != "" {
		made.Session = dormouse.SessionID(dormouse.DeriveID(dormouse.SessionPrefix, c.Who.Tenant, "import", name))
	}
	var answer Imported
	return s.takeImage(c, http.StatusCreated, func(image io.Reader) (_ any, err error) {
		answer.Row, answer.Snapshot, err = s.Sessions.CreateFrom(c.R.Context(), c.Who.Actor, made, q.Get("label"), image)
		return answer, err
	})
}

// importSnapshot makes a snapshot of a session from an image, which is the body. The
// session goes on with the files it has.
func (s *Server) importSnapshot(c call) error {
	q, err := c.query("id", "label")
	if err != nil {
		return err
	}
	if err := checkName("id", q.Get("id")); err != nil {
		return err
	}
	ctx, cancel := c.Context()
	defer cancel()
	id, err := s.own(ctx, c)
	if err != nil {
		return err
	}
	name := q.Get("id")
	if name != "" {
		name = "import\x00" + name // what is taken has its own names
	}
	ask := dormouse.SnapshotAsk{ID: dormouse.SnapshotID(named(dormouse.SnapshotPrefix, id, name)), Label: q.Get("label")}
	return s.takeImage(c, http.StatusOK, func(image io.Reader) (any, error) {
		if _, err := s.Sessions.Import(c.R.Context(), id, c.Who.Actor, ask, image); err != nil {
			return nil, err
		}
		return s.fullSnapshot(c.R.Context(), id, ask.ID)
	})
}

// takeImage reads an image from the body as it comes, and answers once what is made
// of it is there.
func (s *Server) takeImage(c call, status int, take func(image io.Reader) (any, error)) error {
	kind, _, err := mime.ParseMediaType(c.R.Header.Get("Content-Type"))
	if err != nil || kind != "application/x-tar" && kind != "application/octet-stream" || c.R.Header.Get("Content-Encoding") != "" {
		return &door.Refusal{
			Status: http.StatusUnsupportedMediaType, Type: "unsupported_media_type",
			Message: "send the image as Content-Type: application/x-tar; its own compression is found out",
		}
	}
	c.Stream = true // it takes as long as its client
	answering := s.withoutDeadlines(c)
	defer answering()
	body := http.MaxBytesReader(c.W, c.R.Body, maxTree)
	made, err := take(&tarReader{body: body, control: http.NewResponseController(c.W)})
	if err != nil {
		return explainBody(err, "nothing of it was kept")
	}
	answering()
	return c.Answer(status, made)
}
