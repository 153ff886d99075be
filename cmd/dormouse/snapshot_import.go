package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"sync/atomic"

	"github.com/spf13/cobra"

	"github.com/dormouse-run/dormouse/door/rest"
)

// importFlags say what becomes of an image.
type importFlags struct {
	session, label, id string
	create             createFlags // of a session that is made
}

func newSnapshotImport() *cobra.Command {
	var f importFlags
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Bring in a container image, as a session or as a snapshot of one",
		Long: `Make a session whose workspace is the files of a container image in one tar, and print its
id: an image of "snapshot export", of "docker save", or an OCI layout, compressed or not.
What is said of the session is said as for "dormouse session create". FILE - is standard
input.

With --session it becomes a snapshot of a session that is there, and its id is printed. That
session goes on with the files it has; "snapshot restore" has it go on with these.

An image that is refused, or cut off, leaves nothing.`,
		Example: `  dormouse snapshot import workspace.tar --title 'as it was'
  dormouse snapshot import workspace.tar --session sesn_…
  docker save debian:12 | dormouse snapshot import -`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return importImage(cmd, f, args[0]) },
	}
	fs := cmd.Flags()
	fs.StringVar(&f.session, "session", "", "`session` that it becomes a snapshot of; without it a session is made")
	fs.StringVar(&f.label, "label", "", "what to call the snapshot, for people")
	fs.StringVar(&f.id, "id", "", "your own `id`: the same id and image are the same session or snapshot")
	f.create.flags(fs)
	return cmd
}

func importImage(cmd *cobra.Command, f importFlags, file string) error {
	path, err := f.path()
	if err != nil {
		return err
	}
	c, err := connect(cmd)
	if err != nil {
		return err
	}
	up := &upload{from: cmd.InOrStdin()}
	if file != "-" {
		open, err := os.Open(file)
		if err != nil {
			return err
		}
		defer func() { _ = open.Close() }()
		at, err := open.Stat()
		if err != nil {
			return err
		}
		if at.IsDir() {
			return usage("%s is a directory; an image is one tar", file)
		}
		if up.from = open; at.Mode().IsRegular() {
			up.size = at.Size()
		}
	}
	var raw []byte
	attended(cmd, up.words, func() { raw, err = up.send(cmd.Context(), c, path) })
	if err != nil {
		return err
	}
	return printed(cmd, raw, func(w io.Writer) error {
		if f.session == "" {
			var made rest.Imported
			if err := json.Unmarshal(raw, &made); err != nil {
				return fmt.Errorf("understand answer: %w", err)
			}
			_, err := fmt.Fprintln(w, made.Session)
			return err
		}
		var made rest.Snapshot
		if err := json.Unmarshal(raw, &made); err != nil {
			return fmt.Errorf("understand answer: %w", err)
		}
		_, err := fmt.Fprintln(w, made.ID)
		return err
	})
}

// path is where an image is sent to.
func (f importFlags) path() (string, error) {
	q := url.Values{}
	for key, v := range map[string]string{"label": f.label, "id": f.id} {
		if v != "" {
			q.Set(key, v)
		}
	}
	said, err := f.create.request()
	switch {
	case err != nil:
		return "", err
	case f.session != "" && len(said) > 0:
		return "", usage("--session names a session that is there; what one is like is said when it is made")
	case f.session != "":
		return sessionPath(f.session, "snapshots", "import") + "?" + q.Encode(), nil
	}
	if len(said) > 0 {
		b, err := json.Marshal(said)
		if err != nil {
			return "", fmt.Errorf("write request: %w", err)
		}
		q.Set("session", string(b))
	}
	return "/api/sessions/import?" + q.Encode(), nil
}

// upload is a file on its way to the server.
type upload struct {
	from io.Reader
	size int64 // 0 if nobody knows
	sent atomic.Int64
	over atomic.Bool
}

func (u *upload) Read(b []byte) (int, error) {
	n, err := u.from.Read(b)
	u.sent.Add(int64(n))
	u.over.Store(err != nil)
	return n, err
}

// words is how far it is.
func (u *upload) words() string {
	sent := u.sent.Load()
	switch {
	case u.over.Load() || u.size > 0 && sent >= u.size:
		return size(sent) + " sent, the server keeps them"
	case u.size > 0:
		return fmt.Sprintf("%s of %s, %d%%", size(sent), size(u.size), sent*100/u.size)
	}
	return size(sent)
}

// send sends it, and returns what the server answers.
func (u *upload) send(ctx context.Context, c *client, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+path, io.NopCloser(u))
	if err != nil {
		return nil, fmt.Errorf("write request: %w", err)
	}
	if u.size > 0 {
		req.ContentLength = u.size
	}
	req.Header.Set("Content-Type", "application/x-tar")
	req.Header.Set("Expect", "100-continue") // nothing is sent to who does not want it
	res, err := c.do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	const most = 16 << 20
	raw, err := io.ReadAll(io.LimitReader(res.Body, most))
	if err != nil {
		return nil, fmt.Errorf("read answer: %w", err)
	}
	return raw, nil
}
