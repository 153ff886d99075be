package archive_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
	"github.com/dormouse-run/dormouse/store/archive"
)

var large = []byte(`{"content":"` + strings.Repeat("large ", 20_000) + `"}`)

// history is a log of n events, each unlike the others.
func history(n int) []dormouse.Event {
	var log []dormouse.Event
	for i := range n {
		log = append(log, dormouse.Event{
			Seq: uint64(i + 1), ID: dormouse.EventID(fmt.Sprintf("sevt_%d", i+1)), Type: dormouse.UserMessage, Actor: "user:me",
			Time:    time.Date(2026, 1, 2, 3, 4, 5, 678_000, time.UTC).Add(time.Duration(i) * time.Hour),
			Payload: json.RawMessage(fmt.Sprintf(`{"n": %d, "html":"<&>"}`, i)), // written in a form that no encoder uses
		})
	}
	return log
}

// sample is one of everything.
func sample() []archive.Item {
	log := history(5)
	log[1].Payload = nil
	log[2].Payload, log[2].Blob = nil, dormouse.DigestOf(large)
	log[3].Payload, log[3].Blob = nil, dormouse.DigestOf([]byte("lost"))
	sum := archive.NewSum()
	sum.Add(log...)
	return []archive.Item{
		archive.Documents{version("agent", "a", 1, true), version("agent", "a", 2, true)},
		archive.Documents{version("agent", "a", 5, false), version("agent", "b", 1, false), version("environment", "a", 3, false)},
		archive.Session{ID: "sesn_one", Epoch: 7},
		archive.Events(log[:2]),
		archive.Blob(large),
		archive.Lost{Blob: log[3].Blob},
		archive.Events(log[2:]),
		archive.Chunks{{Op: "op_1", N: 0, Text: "once "}, {Op: "op_1", N: 3, Text: "upon\x00"}},
		archive.Chunks{{Op: "op_2", N: 9, Text: ""}},
		archive.End{Events: 5, Chunks: 3, Digest: sum.Digest()},
		archive.Session{ID: "sesn_two"},
		archive.Events(log[:1]),
		archive.End{Events: 1, Digest: sumOf(log[:1])},
	}
}

// version is a version of a document.
func version(kind, id string, n int, past bool) archive.Version {
	at := history(n)[n-1].Time
	v := archive.Version{Past: past, Document: store.Document{
		Tenant: "acme", Kind: kind, ID: id, Version: n, Created: at, Updated: at.Add(time.Hour), Body: fmt.Appendf(nil, `{"n": %d, "html":"<&>"} `, n),
	}}
	if !past {
		v.Name, v.Archived = kind+" "+id, at
	}
	return v
}

func sumOf(log []dormouse.Event) dormouse.Digest {
	sum := archive.NewSum()
	sum.Add(log...)
	return sum.Digest()
}

// write writes items as a caller would.
func write(t testing.TB, items ...archive.Item) ([]byte, dormouse.Digest, archive.Total) {
	t.Helper()
	var out bytes.Buffer
	w, err := archive.NewWriter(&out)
	if err != nil {
		t.Fatal(err)
	}
	for _, item := range items {
		switch i := item.(type) {
		case archive.Documents:
			err = w.Documents(i)
		case archive.Session:
			err = w.Session(i)
		case archive.Blob:
			err = w.Blob(i)
		case archive.Lost:
			err = w.Lost(i.Blob)
		case archive.Events:
			err = w.Events(i)
		case archive.Chunks:
			err = w.Chunks(i)
		case archive.End:
			err = w.End()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	d, total, err := w.Close()
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes(), d, total
}

// read reads an archive to its end.
func read(b []byte) (items []archive.Item, r *archive.Reader, err error) {
	r, err = archive.NewReader(bytes.NewReader(b))
	for err == nil {
		var item archive.Item
		if item, err = r.Next(); err == nil {
			items = append(items, item)
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return items, r, err
}

func TestWhatWasWrittenIsRead(t *testing.T) {
	b, digest, total := write(t, sample()...)
	items, r, err := read(b)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sample(), items); diff != "" {
		t.Errorf("items (-written +read):\n%s", diff)
	}
	if want := (archive.Total{Sessions: 2, Events: 6, Chunks: 3, Blobs: 1, Lost: 1, Documents: 3, Versions: 2}); total != want || r.Total() != want {
		t.Errorf("total = %+v written, %+v read, want %+v", total, r.Total(), want)
	}
	if r.Digest() != digest || digest.Validate() != nil {
		t.Errorf("digest = %s written, %s read", digest, r.Digest())
	}
	if _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v", err)
	}
}

func TestTheSameSessionsMakeTheSameArchive(t *testing.T) {
	a, _, _ := write(t, sample()...)
	b, _, _ := write(t, sample()...)
	if !bytes.Equal(a, b) {
		t.Error("two archives of the same sessions differ")
	}
}

func TestAnArchiveMayBeEmpty(t *testing.T) {
	b, _, _ := write(t)
	if items, _, err := read(b); err != nil || len(items) != 0 {
		t.Errorf("read %v, %v", items, err)
	}
}

func TestALogHasOneSumHoweverItIsAdded(t *testing.T) {
	log := history(3)
	sum := archive.NewSum()
	sum.Add(log[:2]...)
	sum.Add(log[2:]...)
	whole := sumOf(log)
	if sum.Digest() != whole {
		t.Error("the sum depends on the pages")
	}
	for name, change := range map[string]func(*dormouse.Event){
		"payload": func(e *dormouse.Event) { e.Payload = json.RawMessage(`{}`) },
		"time":    func(e *dormouse.Event) { e.Time = e.Time.Add(time.Microsecond) },
		"actor":   func(e *dormouse.Event) { e.Actor = "user:other" },
		"blob":    func(e *dormouse.Event) { e.Blob = dormouse.DigestOf(nil) },
	} {
		other := history(3)
		change(&other[1])
		if sumOf(other) == whole {
			t.Errorf("another %s has the same sum", name)
		}
	}
	if sumOf(log[:2]) == whole {
		t.Error("a shorter log has the same sum")
	}
}

func TestATruncatedArchiveIsRefusedWhereverItWasCut(t *testing.T) {
	b, _, _ := write(t, sample()...)
	for n := range b {
		_, _, err := read(b[:n])
		if !errors.Is(err, archive.ErrDamaged) {
			t.Fatalf("cut after %d of %d bytes: %v", n, len(b), err)
		}
	}
}

// Some bits of a zstd frame mean nothing. Whatever is flipped, nothing else may
// come out than what went in.
func TestAnAlteredArchiveNeverReadsAsAnother(t *testing.T) {
	b, _, _ := write(t, sample()...)
	want, _, err := read(b)
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	for n := range b {
		for _, bit := range []byte{1, 0x80} {
			altered := bytes.Clone(b)
			altered[n] ^= bit
			got, _, err := read(altered)
			expected := want
			if err != nil { // what came before was right
				refused++
				expected = want[:len(got)]
			}
			if diff := cmp.Diff(expected, got, cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("byte %d: it reads as another archive, and then %v (-want +got):\n%s", n, err, diff)
			}
		}
	}
	if refused < 2*len(b)*9/10 {
		t.Errorf("%d of %d alterations were refused", refused, 2*len(b))
	}
}

func TestDamageIsReportedWithItsPlace(t *testing.T) {
	pages := forge(t, sample()...)
	pages[4][8] ^= 1 // the first events
	_, _, err := read(pack(t, pages...))
	if !errors.Is(err, archive.ErrDamaged) || !strings.Contains(err.Error(), "in sesn_one after event 0, after 4 pages and") {
		t.Errorf("told as %v", err)
	}
}

func TestAPageTooLargeIsNotWritten(t *testing.T) {
	w, err := archive.NewWriter(io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Session(archive.Session{ID: "sesn_one"}); err != nil {
		t.Fatal(err)
	}
	e := history(1)
	e[0].Payload = make([]byte, 65<<20)
	for name, err := range map[string]error{
		"bytes":  w.Events(e),
		"events": w.Events(history(archive.MaxRecords + 1)),
		"chunks": w.Chunks(make([]store.Chunk, archive.MaxRecords+1)),
	} {
		if !errors.Is(err, dormouse.ErrTooLarge) {
			t.Errorf("too many %s: %v", name, err)
		}
	}
}

func TestAWriterReportsADiskThatFails(t *testing.T) {
	w, err := archive.NewWriter(broken{})
	if err == nil {
		err = w.Session(archive.Session{ID: "sesn_one"})
	}
	if err == nil {
		err = w.Blob(large)
	}
	if err == nil {
		_, _, err = w.Close()
	}
	if !errors.Is(err, errBroken) {
		t.Errorf("told as %v", err)
	}
}

func TestAReaderTellsADiskThatFailsFromDamage(t *testing.T) {
	b, _, _ := write(t, sample()...)
	for _, n := range []int{0, len(b) / 2} {
		r, err := archive.NewReader(io.MultiReader(bytes.NewReader(b[:n]), broken{}))
		for err == nil {
			_, err = r.Next()
		}
		if !errors.Is(err, errBroken) || errors.Is(err, archive.ErrDamaged) {
			t.Errorf("after %d bytes: %v", n, err)
		}
	}
}

var errBroken = errors.New("broken")

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errBroken }
func (broken) Read([]byte) (int, error)  { return 0, errBroken }
