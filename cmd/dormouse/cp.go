package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/client"
)

func newCp() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cp SOURCE DESTINATION",
		Short: "Copy files into and out of a session's sandbox",
		Long: `Copy a file or a directory out of a session's sandbox, or into it. SESSION:PATH is a
path in the sandbox, below the workspace unless it begins with a slash; the other
one is a path here, or - for a tar on standard input or output. A sandbox that
sleeps is woken.

A directory becomes the destination, or is put into it: here if the destination is a
directory, in the sandbox if it ends in a slash. A file likewise. What is there is
written over; what else is there stays.`,
		Example: `  dormouse cp sesn_…:report.pdf .
  dormouse cp sesn_…:src ./src-of-the-agent
  dormouse cp notes.txt sesn_…:docs/
  dormouse cp sesn_…:. - | tar t`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			from, out := parseRemote(args[0])
			to, in := parseRemote(args[1])
			if in == out {
				return usage("one of %q and %q must be SESSION:PATH, and the other a path here", args[0], args[1])
			}
			c, err := connect(cmd)
			if err != nil {
				return err
			}
			k := &copying{cmd: cmd, client: c, progress: newProgress(cmd.ErrOrStderr())}
			k.progress.last = time.Now() // what is soon done needs none
			var status client.Copied
			if out {
				status, err = k.out(cmd.Context(), from, args[1])
			} else {
				status, err = k.in(cmd.Context(), args[0], to)
			}
			if k.shows() {
				k.progress.done()
			}
			if err != nil {
				return err
			}
			return k.report(status, args[1] == "-")
		},
	}
	clientFlags(cmd)
	return cmd
}

// remote is a path in a sandbox.
type remote struct {
	session dormouse.SessionID
	path    string
}

// parseRemote reads SESSION:PATH. A path here that looks the same is written with
// ./ before it.
func parseRemote(arg string) (remote, bool) {
	id, at, ok := strings.Cut(arg, ":")
	if !ok || dormouse.SessionID(id).Validate() != nil {
		return remote{}, false
	}
	if at == "" {
		at = "."
	}
	return remote{dormouse.SessionID(id), at}, true
}

// copying is one copy in progress.
type copying struct {
	cmd      *cobra.Command
	client   *client.Client
	progress *progress
	moved    int64
}

// shows reports whether progress is shown.
func (k *copying) shows() bool { return isTerminal(k.cmd.ErrOrStderr()) }

// Write counts what has moved.
func (k *copying) Write(b []byte) (int, error) {
	k.moved += int64(len(b))
	if k.shows() {
		k.progress.Update("%s", size(k.moved))
	}
	return len(b), nil
}

// report prints what was copied, for people or as JSON.
func (k *copying) report(s client.Copied, toStdout bool) error {
	w := k.cmd.OutOrStdout()
	if toStdout {
		w = k.cmd.ErrOrStderr() // the other one is for the tar
	}
	if s.Changed > 0 {
		fmt.Fprintf(k.cmd.ErrOrStderr(), "dormouse: %s shrank while being read; zeroes stand for what is lost\n", plural(s.Changed, "file"))
	}
	if asJSON, _ := k.cmd.Flags().GetBool("json"); asJSON {
		return json.NewEncoder(w).Encode(s)
	}
	if k.shows() {
		fmt.Fprintf(k.cmd.ErrOrStderr(), "%s, %s\n", plural(s.Files, "file"), size(s.Bytes))
	}
	return nil
}

// out copies from a sandbox.
func (k *copying) out(ctx context.Context, from remote, to string) (status client.Copied, err error) {
	files, err := k.client.GetFiles(ctx, from.session, from.path)
	if err != nil {
		return status, err
	}
	defer func() { _ = files.Close() }()
	body := io.TeeReader(files, k)
	if to == "-" {
		_, err = io.Copy(k.cmd.OutOrStdout(), body)
	} else if err = unpack(body, path.Base(path.Clean(from.path)), to); err == nil {
		_, err = io.Copy(io.Discard, body) // what follows the tar is how it went
	}
	if err != nil {
		return status, fmt.Errorf("copy %s: %w", from.path, err)
	}
	if status, err = files.Copied(); err != nil {
		return status, fmt.Errorf("copy %s: it was cut off", from.path)
	}
	return status, nil
}

// in copies to a sandbox.
func (k *copying) in(ctx context.Context, from string, to remote) (status client.Copied, err error) {
	if from == "-" {
		return k.put(ctx, k.cmd.InOrStdin(), to)
	}
	from = filepath.Clean(from)
	at, err := os.Stat(from)
	if err != nil {
		return status, err
	}
	dir, name := to.path, filepath.Base(from)
	into := strings.HasSuffix(to.path, "/") || path.Base(to.path) == "." || path.Base(to.path) == ".."
	switch {
	case at.IsDir() && into:
		dir = path.Join(to.path, name)
	case !at.IsDir() && !into:
		dir, name = path.Split(path.Clean(to.path))
		dir = path.Clean(dir)
	}
	tar, w := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := pack(w, from, name, at)
		packed <- err
		_ = w.CloseWithError(err)
	}()
	status, err = k.put(ctx, tar, remote{to.session, dir})
	_ = tar.Close() // a server that had enough has said why
	if bad := <-packed; bad != nil && !errors.Is(bad, io.ErrClosedPipe) {
		return status, fmt.Errorf("copy %s: %w", from, bad)
	}
	return status, err
}

func (k *copying) put(ctx context.Context, tar io.Reader, to remote) (client.Copied, error) {
	return k.client.PutFiles(ctx, to.session, to.path, client.Tar{Reader: io.TeeReader(tar, k)})
}
