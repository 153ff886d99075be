package postgres

import (
	"crypto/sha256"
	"encoding/json"
	"io"
	"slices"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
)

// encoded is the part of a batch that is encoded before it becomes rows. The caller's
// goroutine does that.
type encoded struct {
	metrics   string
	labels    labels
	prompts   []dormouse.PromptRecord
	ops       []op
	snapshots []snapshotBlobs
	chunks    []store.Chunk
}

// labels is what people put on a session.
type labels struct {
	tags, metadata, search string
	sum                    labelSum
}

// labelSum is the checksum of labels: it is kept in memory for them, since they may be large.
type labelSum [sha256.Size]byte

// op is the row of an op with its JSON.
type op struct {
	dormouse.OpRecord
	json string
}

// noLabels is what a session without a row of labels has.
var noLabels = labels{tags: "[]", metadata: "{}"}.summed()

// summed returns l with its checksum.
func (l labels) summed() labels {
	h := sha256.New()
	for _, s := range []string{l.tags, l.metadata, l.search} {
		_, _ = io.WriteString(h, s) // neither can fail
		_, _ = h.Write([]byte{0})
	}
	h.Sum(l.sum[:0])
	return l
}

// encode encodes a batch. A statement must not touch a row twice, so of several
// rows with one id the last one counts.
func encode(b store.Batch) (e encoded, err error) {
	e.chunks = lastByKey(b.Chunks, func(c store.Chunk) store.Chunk { return store.Chunk{Op: c.Op, N: c.N} })
	if b.Rows == nil {
		return e, nil
	}
	i := b.Rows.Session
	if e.metrics, err = toJSON(i.Metrics); err != nil {
		return e, err
	}
	e.labels = noLabels
	e.labels.search = i.Search
	if len(i.Tags) > 0 {
		if e.labels.tags, err = toJSON(i.Tags); err != nil {
			return e, err
		}
	}
	if len(i.Metadata) > 0 {
		if e.labels.metadata, err = toJSON(i.Metadata); err != nil {
			return e, err
		}
	}
	e.labels = e.labels.summed()
	e.prompts = lastByKey(b.Rows.Prompts, func(p dormouse.PromptRecord) dormouse.EventID { return p.ID })
	for _, o := range lastByKey(b.Rows.Ops, func(o dormouse.OpRecord) dormouse.OpID { return o.ID }) {
		text, err := toJSON(o.Op)
		if err != nil {
			return e, err
		}
		e.ops = append(e.ops, op{o, text})
	}
	e.snapshots, err = encodeSnapshotBlobs(b.Rows)
	return e, err
}

// snapshotBlobs is the row of a snapshot: the blobs that it names, each digest once and
// none empty.
type snapshotBlobs struct {
	dormouse.SnapshotBlobs
	json string
}

// encodeSnapshotBlobs returns the last row of each snapshot that changes. Released snapshots
// name nothing.
func encodeSnapshotBlobs(r *dormouse.Rows) ([]snapshotBlobs, error) {
	all := make([]snapshotBlobs, 0, len(r.SnapshotBlobs)+len(r.Released))
	for _, n := range r.SnapshotBlobs {
		n.Digests = slices.Compact(slices.Sorted(slices.Values(n.Digests)))
		n.Digests = slices.DeleteFunc(n.Digests, func(d dormouse.Digest) bool { return d == "" })
		text, err := toJSON(n.Digests)
		if err != nil {
			return nil, err
		}
		all = append(all, snapshotBlobs{n, text})
	}
	for _, id := range r.Released {
		all = append(all, snapshotBlobs{SnapshotBlobs: dormouse.SnapshotBlobs{Snapshot: id}})
	}
	return lastByKey(all, func(p snapshotBlobs) dormouse.SnapshotID { return p.Snapshot }), nil
}

// lastByKey keeps of rows with the same key the last, in the place of the first.
func lastByKey[T any, K comparable](rows []T, key func(T) K) []T {
	if len(rows) < 2 {
		return rows
	}
	places := make(map[K]int, len(rows))
	kept := make([]T, 0, len(rows))
	for _, r := range rows {
		k := key(r)
		if place, ok := places[k]; ok {
			kept[place] = r
			continue
		}
		places[k] = len(kept)
		kept = append(kept, r)
	}
	return kept
}

// toJSON is how what has no columns of its own is stored.
func toJSON(v any) (string, error) {
	b, err := json.Marshal(v)
	return string(b), err
}
