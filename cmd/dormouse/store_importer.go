package main

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

// importer takes the documents and the sessions of an archive in.
type importer struct {
	to       *deployment
	progress *progress
	writes   bool
	of       uint64 // how many sessions there are, once that is known
	done     imported
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
			return i.done, fmt.Errorf("%s: %w", i.at, err)
		}
		if i.writes {
			i.progress.tell("import: %d of %s", i.done.Verified, plural(i.of, "session"))
		} else {
			i.progress.tell("import: looking at %s", i.at)
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
		Rows: dormouse.Arriving(i.id, i.created, events[len(events)-1]),
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
	rows, err := history.Rebuild(ctx, i.to.store, i.to.blobs, i.id)
	if i.lost && errors.Is(err, dormouse.ErrDamaged) {
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
func (i *importer) verify(ctx context.Context, rows dormouse.Rows, end archive.End) error {
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
