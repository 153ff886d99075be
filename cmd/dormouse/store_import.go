package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session"
	"github.com/dormouse-run/dormouse/store"
	"github.com/dormouse-run/dormouse/store/archive"
)

// imported is what an import did.
type imported struct {
	File string `json:"file"`
	archive.Total
	Digest dormouse.Digest `json:"digest"`
	// Added counts the events that were not there before.
	Added uint64 `json:"added"`
	// Verified counts the sessions whose log has the digest it had and whose rows
	// follow from it.
	Verified uint64 `json:"verified"`
	// Withheld counts the sessions that cannot be shown or run, because a payload
	// they need had been lost. Their logs are there.
	Withheld uint64 `json:"withheld"`
	// Workspaces is where those of its sessions belong, which it does not have.
	Workspaces string `json:"workspaces"`
}

func newImport(where *dsn) *cobra.Command {
	var check bool
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Read every session from an archive",
		Long: `Read every session from an archive that "dormouse store export" wrote, and go on
where it left off there. The archive is read twice: nothing is written before it
was found to be whole and to fit.

A session that is there already must have the history it has in the archive, or the
beginning of it, as an import that was stopped leaves it: run it again and it
completes. Other sessions of the store are left alone. No server runs a session
before all of it is there.

Every log is read back and compared when it is written. Workspaces are not part of
an archive: copy them before the server starts. If a payload was lost without which
a session cannot be loaded, its log is kept, the others go on, and the exit code is
3.`,
		Example: `  dormouse store import backup.dormouse --check
  dormouse store import backup.dormouse`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := os.Open(args[0])
			if err != nil {
				return err
			}
			defer func() { _ = f.Close() }()
			return withAnyDeployment(cmd, *where, func(ctx context.Context, d *deployment) error {
				p := newProgress(cmd.ErrOrStderr())
				done, err := importArchive(ctx, f, d, check, p)
				p.done()
				if err != nil {
					return fmt.Errorf("import %s: %w", args[0], err)
				}
				if err := report(cmd, cmd.OutOrStdout(), done, done.say); err != nil {
					return err
				}
				if done.Withheld > 0 {
					return errSeeTo
				}
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&check, "check", false, "only read the archive, and see whether it fits")
	return cmd
}

func (i imported) say(w io.Writer) {
	fmt.Fprintf(w, "%s has %s, %s and %s\n%s\n", i.File,
		plural(i.Sessions, "session"), plural(i.Events, "event"), plural(i.Blobs, "blob"), i.Digest)
	if i.Lost > 0 {
		fmt.Fprintf(w, "%s of them had been lost before it was made\n", plural(i.Lost, "payload"))
	}
	if i.Verified+i.Withheld == 0 {
		fmt.Fprintf(w, "it is whole and fits; nothing was written\n")
		return
	}
	fmt.Fprintf(w, "added %s\n", plural(i.Added, "event"))
	fmt.Fprintf(w, "verified %s: each log has the digest it had, and every row follows from its log\n", plural(i.Verified, "session"))
	fmt.Fprintf(w, "workspaces are not in it: copy workspaces and homes from the old directory to %s\n", i.Workspaces)
}

// importArchive reads the archive twice: the first time to refuse it before
// anything has changed.
func importArchive(ctx context.Context, f *os.File, d *deployment, check bool, p *progress) (done imported, err error) {
	workspaces, err := filepath.Abs(filepath.Join(d.data, "sandbox"))
	if err != nil {
		return done, err
	}
	look := &importer{to: d, progress: p}
	if done, err = look.read(ctx, f); err != nil {
		return done, err
	}
	if !check {
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return done, fmt.Errorf("an archive is read twice: %w", err)
		}
		seen := done
		write := &importer{to: d, progress: p, writes: true, of: seen.Sessions}
		if done, err = write.read(ctx, f); err != nil {
			return done, err
		}
		if done.Digest != seen.Digest {
			return done, errors.New("the archive changed while it was read")
		}
	}
	done.File, done.Workspaces = f.Name(), workspaces
	return done, nil
}

// importer takes the sessions of an archive in.
type importer struct {
	to       *deployment
	progress *progress
	writes   bool
	of       uint64 // how many sessions there are, once that is known
	done     imported

	// Of the session at hand:
	id      dormouse.SessionID
	epoch   store.Epoch // that it is written under
	have    uint64      // how far its log went before
	lost    bool        // payloads of it are lost
	seq     uint64      // how far it was read
	created time.Time
}

func (i *importer) read(ctx context.Context, f io.Reader) (imported, error) {
	r, err := archive.NewReader(bufio.NewReaderSize(f, 1<<20))
	if err != nil {
		return i.done, err
	}
	for {
		item, err := r.Next()
		if errors.Is(err, io.EOF) {
			i.done.Total, i.done.Digest = r.Total(), r.Digest()
			return i.done, nil
		}
		if err != nil {
			return i.done, err
		}
		if err := i.take(ctx, item); err != nil {
			return i.done, fmt.Errorf("%s: %w", i.id, err)
		}
		if i.writes {
			i.progress.tell("import: %d of %s", i.done.Verified, plural(i.of, "session"))
		} else {
			i.progress.tell("import: looking at %s", i.id)
		}
	}
}

func (i *importer) take(ctx context.Context, item archive.Item) (err error) {
	switch item := item.(type) {
	case archive.Session:
		return i.begin(ctx, item)
	case archive.Blob:
		if i.writes { // durable before any row names it
			_, err = i.to.blobs.Put(ctx, item)
		}
		return err
	case archive.Lost:
		i.lost = true
		return nil
	case archive.Events:
		return i.events(ctx, item)
	case archive.Chunks:
		if i.writes {
			err = i.to.store.Append(ctx, store.Batch{Session: i.id, Epoch: i.epoch, After: i.seq, Chunks: item})
		}
		return err
	case archive.End:
		return i.end(ctx, item)
	}
	return nil
}

// begin looks whether the session is there already.
func (i *importer) begin(ctx context.Context, s archive.Session) error {
	i.id, i.epoch, i.have, i.seq, i.lost = s.ID, s.Epoch, 0, 0, false
	epoch, err := i.to.store.Epoch(ctx, s.ID)
	if errors.Is(err, dormouse.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if epoch < s.Epoch {
		return fmt.Errorf("it is here from an older archive, which cannot be gone on with; import into an empty store: %w", dormouse.ErrConflict)
	}
	row, err := i.to.store.Session(ctx, s.ID)
	if err != nil {
		return err
	}
	i.epoch, i.have = epoch, row.Seq
	return nil
}

// events goes on with the session's log where it is not there yet.
func (i *importer) events(ctx context.Context, events archive.Events) error {
	if i.seq == 0 {
		i.created = events[0].Time
	}
	here, err := i.to.store.Read(ctx, i.id, i.seq, len(events))
	if err != nil {
		return err
	}
	for n, e := range here {
		if !same(e, events[n]) {
			return fmt.Errorf("event %d is another one here; import into an empty store: %w", e.Seq, dormouse.ErrConflict)
		}
	}
	i.seq += uint64(len(events))
	if rest := events[len(here):]; i.writes && len(rest) > 0 {
		return i.append(ctx, rest)
	}
	return nil
}

// append adds a page of events.
func (i *importer) append(ctx context.Context, events []dormouse.Event) error {
	b := store.Batch{
		Session: i.id, Epoch: i.epoch, After: events[0].Seq - 1, Events: events,
		Rows: store.Arriving(i.id, i.created, events[len(events)-1]),
	}
	write := i.to.store.Append
	if b.After == 0 {
		write = i.to.store.Import
	}
	if err := write(ctx, b); err != nil {
		return err
	}
	i.done.Added += uint64(len(events))
	return nil
}

// end lays the session's rows out, once its log is found to be what it was.
func (i *importer) end(ctx context.Context, end archive.End) error {
	if i.have > end.Events {
		return fmt.Errorf("it has gone on here, to event %d, and ends at %d in the archive: %w", i.have, end.Events, dormouse.ErrConflict)
	}
	if !i.writes {
		return nil
	}
	digest, err := digestOf(ctx, i.to.store, i.id)
	if err != nil {
		return err
	}
	if digest != end.Digest {
		return fmt.Errorf("its log was stored as %s and is %s in the archive", digest, end.Digest)
	}
	rows, err := session.Rebuild(ctx, i.to.store, i.to.blobs, i.id)
	if i.lost && errors.Is(err, dormouse.ErrNotFound) {
		i.progress.note("%s: is kept and cannot be loaded: %v", i.id, err)
		i.done.Withheld++
		return nil
	}
	if err != nil {
		return err
	}
	if err := i.to.store.Rebuild(ctx, i.id, rows); err != nil {
		return err
	}
	if err := i.verify(ctx, rows, end); err != nil {
		return err
	}
	i.done.Verified++
	return nil
}

// verify holds what is stored beside the log against what was to be.
func (i *importer) verify(ctx context.Context, rows store.Rows, end archive.End) error {
	wrong, err := compare(ctx, i.to.store, i.id, rows)
	if err != nil {
		return err
	}
	if len(wrong) > 0 {
		return fmt.Errorf("%v were not stored as they follow from the log", wrong)
	}
	var n uint64
	for _, op := range rows.Ops {
		if op.Status != dormouse.OpOpen {
			continue
		}
		chunks, err := i.to.store.Chunks(ctx, i.id, op.ID)
		if err != nil {
			return err
		}
		n += uint64(len(chunks))
	}
	if n != end.Chunks {
		return fmt.Errorf("%d of %s of open model calls were stored", n, plural(end.Chunks, "chunk"))
	}
	return nil
}

// digestOf reads a session's log and takes its digest.
func digestOf(ctx context.Context, s store.Log, id dormouse.SessionID) (dormouse.Digest, error) {
	sum := archive.NewSum()
	for seq := uint64(0); ; {
		events, err := s.Read(ctx, id, seq, pageEvents)
		if err != nil || len(events) == 0 {
			return sum.Digest(), err
		}
		sum.Add(events...)
		seq = events[len(events)-1].Seq
	}
}

// same reports whether two events are the same, as they are stored.
func same(a, b dormouse.Event) bool {
	x, y := archive.NewSum(), archive.NewSum()
	x.Add(a)
	y.Add(b)
	return x.Digest() == y.Digest()
}
