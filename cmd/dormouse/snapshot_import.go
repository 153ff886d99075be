package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync/atomic"

	"github.com/spf13/cobra"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/client"
)

// importFlags say what becomes of an image.
type importFlags struct {
	session dormouse.SessionID
	client.SnapshotOptions
	create createFlags // of a session that is made
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
	fs.StringVar((*string)(&f.session), "session", "", "`session` that it becomes a snapshot of; without it a session is made")
	fs.StringVar(&f.Label, "label", "", "what to call the snapshot, for people")
	fs.StringVar(&f.ID, "id", "", "your own `id`: the same id and image are the same session or snapshot")
	f.create.flags(fs)
	return cmd
}

func importImage(cmd *cobra.Command, f importFlags, file string) error {
	o, err := f.create.options()
	if err != nil {
		return err
	}
	if said, err := json.Marshal(o); err != nil || f.session != "" && string(said) != "{}" {
		return usage("--session names a session that is there; what one is like is said when it is made")
	}
	if _, err := connect(cmd); err != nil {
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
	return ask(cmd, func(ctx context.Context, c *client.Client) (made string, err error) {
		image := client.Tar{Reader: up, Size: up.size}
		attended(cmd, up.words, func() {
			if f.session != "" {
				var snapshot client.Snapshot
				snapshot, err = c.ImportSnapshot(ctx, f.session, f.SnapshotOptions, image)
				made = string(snapshot.ID)
				return
			}
			var session client.Imported
			session, err = c.ImportSession(ctx, o, f.SnapshotOptions, image)
			made = string(session.Session)
		})
		return made, err
	}, func(w io.Writer, made string) error {
		_, err := fmt.Fprintln(w, made)
		return err
	})
}

// upload is a file on its way to the server.
type upload struct {
	from io.Reader
	size int64 // 0 if it is unknown
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
