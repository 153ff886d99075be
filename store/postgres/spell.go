package postgres

import (
	"crypto/sha256"
	"encoding/json"
	"io"
	"slices"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
)

// spelled is what of a batch has to be worked out before it can be laid out. It
// is done in the caller's own time.
type spelled struct {
	metrics string
	labels  labels
	prompts []dormouse.PromptRecord
	ops     []dormouse.OpRecord
	texts   []string // of ops
	points  []point
	chunks  []store.Chunk
}

// labels is what people put on a session.
type labels struct {
	tags, metadata, search string
	mark                   fingerprint
}

// fingerprint stands for labels, which may be large, wherever they are kept.
type fingerprint [sha256.Size]byte

// unlabelled is what a session without a row of labels has.
var unlabelled = labels{tags: "[]", metadata: "{}"}.marked()

// marked returns l with its fingerprint.
func (l labels) marked() labels {
	h := sha256.New()
	for _, s := range []string{l.tags, l.metadata, l.search} {
		_, _ = io.WriteString(h, s) // neither can fail
		_, _ = h.Write([]byte{0})
	}
	h.Sum(l.mark[:0])
	return l
}

// spell spells a batch. A statement must not touch a row twice, so of several
// rows with one id the last one counts.
func spell(b store.Batch) (sp spelled, err error) {
	sp.chunks = last(b.Chunks, func(c store.Chunk) store.Chunk { return store.Chunk{Op: c.Op, N: c.N} })
	if b.Rows == nil {
		return sp, nil
	}
	i := b.Rows.Session
	if sp.metrics, err = text(i.Metrics); err != nil {
		return sp, err
	}
	sp.labels = unlabelled
	sp.labels.search = i.Search
	if len(i.Tags) > 0 {
		if sp.labels.tags, err = text(i.Tags); err != nil {
			return sp, err
		}
	}
	if len(i.Metadata) > 0 {
		if sp.labels.metadata, err = text(i.Metadata); err != nil {
			return sp, err
		}
	}
	sp.labels = sp.labels.marked()
	sp.prompts = last(b.Rows.Prompts, func(p dormouse.PromptRecord) dormouse.EventID { return p.ID })
	sp.ops = last(b.Rows.Ops, func(o dormouse.OpRecord) dormouse.OpID { return o.ID })
	for _, o := range sp.ops {
		t, err := text(o.Op)
		if err != nil {
			return sp, err
		}
		sp.texts = append(sp.texts, t)
	}
	sp.points, err = points(b.Rows)
	return sp, err
}

// point is what a point names, each digest once and none empty.
type point struct {
	dormouse.SnapshotBlobs
	text string
}

// points is what each point that changes names in the end. The unnamed ones name
// nothing.
func points(r *dormouse.Rows) ([]point, error) {
	all := make([]point, 0, len(r.SnapshotBlobs)+len(r.Released))
	for _, n := range r.SnapshotBlobs {
		n.Digests = slices.Compact(slices.Sorted(slices.Values(n.Digests)))
		n.Digests = slices.DeleteFunc(n.Digests, func(d dormouse.Digest) bool { return d == "" })
		t, err := text(n.Digests)
		if err != nil {
			return nil, err
		}
		all = append(all, point{n, t})
	}
	for _, id := range r.Released {
		all = append(all, point{SnapshotBlobs: dormouse.SnapshotBlobs{Snapshot: id}})
	}
	return last(all, func(p point) dormouse.SnapshotID { return p.Snapshot }), nil
}

// last keeps of rows with the same key the last, in the place of the first.
func last[T any, K comparable](rows []T, key func(T) K) []T {
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

// text is how what has no columns of its own is stored.
func text(v any) (string, error) {
	b, err := json.Marshal(v)
	return string(b), err
}
