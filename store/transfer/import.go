package transfer

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/history"
	"github.com/dormouse-run/dormouse/store"
	"github.com/dormouse-run/dormouse/store/archive"
)

// Imported is what an import did.
type Imported struct {
	archive.Total
	Digest dormouse.Digest `json:"digest"`
	// Added counts the events that were not there before.
	Added uint64 `json:"added"`
	// Verified counts the sessions whose log has the digest it had and whose rows
	// follow from it.
	Verified uint64 `json:"verified"`
	// VerifiedDocuments counts the documents that have every version they had.
	VerifiedDocuments uint64 `json:"verified_documents"`
	// Withheld counts the sessions that cannot be shown or run, because a payload
	// they need had been lost. Their logs are there.
	Withheld uint64 `json:"withheld"`
}

// Import takes an archive in, or with check only looks whether it is whole and fits. It
// reads it twice: the first time to refuse it before anything has changed.
func Import(ctx context.Context, f io.ReadSeeker, d Deployment, check bool, p Progress) (Imported, error) {
	look := &importer{to: d, progress: p}
	seen, err := look.read(ctx, f)
	if err != nil || check {
		return seen, err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return seen, fmt.Errorf("an archive is read twice: %w", err)
	}
	write := &importer{to: d, progress: p, writes: true, of: seen.Sessions}
	done, err := write.read(ctx, f)
	if err == nil && done.Digest != seen.Digest {
		err = errors.New("the archive changed while it was read")
	}
	return done, err
}

// importer takes the documents and the sessions of an archive in.
type importer struct {
	to       Deployment
	progress Progress
	writes   bool
	of       uint64 // how many sessions there are, once that is known
	done     Imported
	at       string // what it is at
	doc      arriving

	// Of the session at hand:
	id      dormouse.SessionID
	epoch   store.Epoch // that it is written under
	have    uint64      // how far its log went before
	lost    bool        // payloads of it are lost
	seq     uint64      // how far it was read
	created time.Time
}

func (i *importer) read(ctx context.Context, f io.Reader) (Imported, error) {
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
			return i.done, fmt.Errorf("%s: %w", i.at, err)
		}
		if i.writes {
			i.progress.Update("import: %d of %d sessions", i.done.Verified, i.of)
		} else {
			i.progress.Update("import: looking at %s", i.at)
		}
	}
}

func (i *importer) take(ctx context.Context, item archive.Item) (err error) {
	switch item := item.(type) {
	case archive.Documents:
		for _, v := range item {
			i.at = v.Ref().String()
			if err := i.document(ctx, v); err != nil {
				return err
			}
		}
		return nil
	case archive.Session:
		i.at = string(item.ID)
		return i.begin(ctx, item)
	case archive.Blob:
		if i.writes { // durable before any row names it
			_, err = i.to.Blobs.Put(ctx, item)
		}
		return err
	case archive.Lost:
		i.lost = true
		return nil
	case archive.Events:
		return i.events(ctx, item)
	case archive.Chunks:
		if i.writes {
			err = i.to.Store.Append(ctx, store.Batch{Session: i.id, Epoch: i.epoch, After: i.seq, Chunks: item})
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
	epoch, err := i.to.Store.Epoch(ctx, s.ID)
	if errors.Is(err, dormouse.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if epoch < s.Epoch {
		return fmt.Errorf("it is here from an older archive, which cannot be gone on with; import into an empty store: %w", dormouse.ErrConflict)
	}
	row, err := i.to.Store.Session(ctx, s.ID)
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
	here, err := i.to.Store.Read(ctx, i.id, i.seq, len(events))
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
		return i.appendEvents(ctx, rest)
	}
	return nil
}

// appendEvents adds a page of events.
func (i *importer) appendEvents(ctx context.Context, events []dormouse.Event) error {
	b := store.Batch{
		Session: i.id, Epoch: i.epoch, After: events[0].Seq - 1, Events: events,
		Rows: dormouse.Arriving(i.id, i.created, events[len(events)-1]),
	}
	write := i.to.Store.Append
	if b.After == 0 {
		write = i.to.Store.Import
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
	digest, err := LogDigest(ctx, i.to.Store, i.id)
	if err != nil {
		return err
	}
	if digest != end.Digest {
		return fmt.Errorf("its log was stored as %s and is %s in the archive", digest, end.Digest)
	}
	rows, err := history.Rebuild(ctx, i.to.Store, i.to.Blobs, i.id)
	if i.lost && errors.Is(err, dormouse.ErrDamaged) {
		i.progress.Note("%s: is kept and cannot be loaded: %v", i.id, err)
		i.done.Withheld++
		return nil
	}
	if err != nil {
		return err
	}
	if err := i.to.Store.Rebuild(ctx, i.id, rows); err != nil {
		return err
	}
	if err := i.verify(ctx, rows, end); err != nil {
		return err
	}
	i.done.Verified++
	return nil
}

// verify holds what is stored beside the log against what was to be.
func (i *importer) verify(ctx context.Context, rows dormouse.Rows, end archive.End) error {
	wrong, err := Compare(ctx, i.to.Store, i.id, rows)
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
		chunks, err := i.to.Store.Chunks(ctx, i.id, op.ID)
		if err != nil {
			return err
		}
		n += uint64(len(chunks))
	}
	if n != end.Chunks {
		return fmt.Errorf("%d of %d chunks of open model calls were stored", n, end.Chunks)
	}
	return nil
}

// same reports whether two events are the same, as they are stored.
func same(a, b dormouse.Event) bool {
	x, y := archive.NewSum(), archive.NewSum()
	x.Add(a)
	y.Add(b)
	return x.Digest() == y.Digest()
}
