package archive_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store/archive"
)

// page is one page without its seal: kind, length, body.
func page(kind byte, body string) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(body))), body...)
}

// record encodes an event or a chunk.
func record(detail, text string) string {
	b := append(binary.AppendUvarint(nil, uint64(len(detail))), detail...)
	return string(append(binary.AppendUvarint(b, uint64(len(text))), text...))
}

// sealed lines pages up, each with its seal.
func sealed(pages ...[]byte) []byte {
	var all []byte
	var seal [sha256.Size]byte
	for _, p := range pages {
		seal = sha256.Sum256(append(seal[:], p...))
		all = append(append(all, p...), seal[:]...)
	}
	return all
}

func zip(t testing.TB, b []byte) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	return w.EncodeAll(b, nil)
}

// forge takes an archive apart into its pages, seals included.
func forge(t testing.TB, items ...archive.Item) [][]byte {
	t.Helper()
	b, _, _ := write(t, items...)
	r, err := zstd.NewReader(bytes.NewReader(b), zstd.WithDecoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if b, err = io.ReadAll(r); err != nil {
		t.Fatal(err)
	}
	var pages [][]byte
	for len(b) > 0 {
		n := 5 + int(binary.BigEndian.Uint32(b[1:])) + sha256.Size
		pages, b = append(pages, b[:n:n]), b[n:]
	}
	return pages
}

// pack puts pages with their seals back into an archive.
func pack(t testing.TB, pages ...[]byte) []byte {
	t.Helper()
	return zip(t, bytes.Join(pages, nil))
}

const (
	good = `{"format":"dormouse archive","version":1}`
	one  = `{"session":"sesn_one","epoch":1}`
	none = `{"sessions":0,"events":0,"chunks":0,"blobs":0,"lost":0}`
)

var (
	event1 = `{"seq":1,"id":"sevt_1","type":"user.message","actor":"user:me","time":"2026-01-02T03:04:05Z"}`
	chunk  = `{"op":"op_1","n":0}`
	end1   = `{"events":1,"digest":"` + string(sumOf([]dormouse.Event{decoded()})) + `"}`
	total1 = `{"sessions":1,"events":1,"chunks":0,"blobs":0,"lost":0}`
)

func decoded() dormouse.Event {
	e := history(1)[0]
	e.Time, e.Payload = e.Time.Truncate(1e9), nil
	return e
}

func TestWhatIsNoArchiveIsSaidToBeNone(t *testing.T) {
	for name, c := range map[string]struct {
		b    []byte
		want error
	}{
		"text":             {[]byte("hello, this is a file of somebody else"), archive.ErrForeign},
		"zstd of another":  {zip(t, sealed(page('X', "hello"))), archive.ErrForeign},
		"another header":   {zip(t, sealed(page('H', `{"format":"tar"}`))), archive.ErrForeign},
		"a newer version":  {zip(t, sealed(page('H', `{"format":"dormouse archive","version":4,"more":1}`))), archive.ErrNewer},
		"nothing":          {nil, archive.ErrDamaged},
		"an empty archive": {zip(t, nil), archive.ErrDamaged},
	} {
		if _, err := archive.NewReader(bytes.NewReader(c.b)); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// A session that only a newer program can go on with is not one that was damaged.
func TestAnArchiveThatNeedsANewerProgramSaysSo(t *testing.T) {
	newer := strings.Replace(event1, "user.message", "session.dreamt", 1)
	for name, pages := range map[string][][]byte{
		"as the session says": {page('S', `{"session":"sesn_one","epoch":1,"needs":2}`)},
		"as its events are":   {page('S', one), page('E', record(newer, "{}"))},
	} {
		r, err := archive.NewReader(bytes.NewReader(zip(t, sealed(append([][]byte{page('H', good)}, pages...)...))))
		for err == nil {
			_, err = r.Next()
		}
		if !errors.Is(err, archive.ErrNewer) || errors.Is(err, archive.ErrDamaged) || !strings.Contains(err.Error(), "sesn_one is of a newer program") {
			t.Errorf("%s: %v, want ErrNewer", name, err)
		}
	}
}

// Each has valid seals, as an attacker would make it.
func TestAnArchiveThatCannotBeIsRefused(t *testing.T) {
	const document = `{"tenant":"","kind":"agent","id":"a","version":2,"created_at":"2026-01-02T03:04:05Z","updated_at":"2026-01-02T03:04:05Z"}`
	past := strings.Replace(document, `"version":2`, `"version":1,"past":true`, 1)
	after := strings.Replace(document, `"a"`, `"b"`, 1)
	documents := strings.Replace(total1, "}", `,"documents":2,"versions":1}`, 1)
	digest := string(dormouse.DigestOf([]byte("blob")))
	named := strings.Replace(event1, `"time"`, `"blob":"`+digest+`","time"`, 1)
	good1 := [][]byte{page('S', one), page('E', record(event1, "")), page('Z', end1), page('T', total1)}
	if _, _, err := read(zip(t, sealed(append([][]byte{page('H', good)}, good1...)...))); err != nil {
		t.Fatalf("the archive that the others are made of is refused: %v", err)
	}
	written := page('D', record(past, "{}")+record(document, "{}")+record(after, "{}"))
	if _, _, err := read(zip(t, sealed(page('H', good), written, good1[0], good1[1], good1[2], page('T', documents)))); err != nil {
		t.Fatalf("the archive of documents that the others are made of is refused: %v", err)
	}
	for name, pages := range map[string][][]byte{
		"documents that are not counted":      append([][]byte{written}, good1...),
		"documents after sessions":            {good1[0], good1[1], good1[2], written, page('T', documents)},
		"documents in a session":              {good1[0], written},
		"no documents in a page":              {page('D', "")},
		"a past without its document":         {page('D', record(past, "{}")), good1[0]},
		"nothing but a past":                  {page('D', record(past, "{}")), page('T', strings.Replace(none, "}", `,"versions":1}`, 1))},
		"a past of another document":          {page('D', record(past, "{}")+record(after, "{}"))},
		"a past that is not before":           {page('D', record(past, "{}")+record(past, "{}"))},
		"documents out of order":              {page('D', record(after, "{}")+record(document, "{}"))},
		"a document twice":                    {page('D', record(document, "{}")), page('D', record(document, "{}"))},
		"a document that is not JSON":         {page('D', record(document, "{"))},
		"a document without measure":          {page('D', record(document, `"`+strings.Repeat("x", 1<<20)+`"`))},
		"a document without a kind":           {page('D', record(strings.Replace(document, "agent", "", 1), "{}"))},
		"a document of version none":          {page('D', record(strings.Replace(document, ":2,", ":0,", 1), "{}"))},
		"a document with a time in a zone":    {page('D', record(strings.Replace(document, `05Z`, `05+02:00`, 1), "{}"))},
		"a document with a field of its own":  {page('D', record(strings.Replace(document, `"kind"`, `"x":1,"kind"`, 1), "{}"))},
		"a document with a body in its place": {page('D', record(strings.Replace(document, `"kind"`, `"Body":"e30=","kind"`, 1), "{}"))},
		"no trailer":                          {page('S', one), page('E', record(event1, "")), page('Z', end1)},
		"a session without an end":            {page('S', one), page('E', record(event1, "")), page('T', total1)},
		"a session in a session":              {page('S', one), page('S', one)},
		"a session without events":            {page('S', one), page('Z', `{"events":0,"digest":"`+string(sumOf(nil))+`"}`)},
		"a session without a name":            {page('S', `{"session":"","epoch":1}`)},
		"a name with a path in it":            {page('S', `{"session":"sesn_../../etc","epoch":1}`)},
		"a negative epoch":                    {page('S', `{"session":"sesn_one","epoch":-1}`)},
		"a field nobody knows":                {page('S', `{"session":"sesn_one","epoch":1,"owner":"me"}`)},
		"two objects":                         {page('S', one+one)},
		"no JSON":                             {page('S', "\x00\x01")},
		"events without a session":            {page('E', record(event1, ""))},
		"a blob without a session":            {page('B', "blob")},
		"an unknown page":                     {page('?', "")},
		"a second header":                     {page('H', good)},
		"no events in a page":                 {page('S', one), page('E', "")},
		"events that begin at two":            {page('S', one), page('E', record(strings.Replace(event1, `"seq":1`, `"seq":2`, 1), ""))},
		"an event twice":                      {page('S', one), page('E', record(event1, "")+record(event1, ""))},
		"an event without its text":           {page('S', one), page('E', record(event1, "")[:len(event1)])},
		"an event longer than is left":        {page('S', one), page('E', "\xff\xff\xff\xff\xff\xff\xff\xff\x7f{}")},
		"a length without end":                {page('S', one), page('E', strings.Repeat("\xff", 20))},
		"a payload twice":                     {page('S', one), page('E', record(strings.Replace(event1, `"time"`, `"payload":{},"time"`, 1), "{}"))},
		"a payload beside a blob":             {page('S', one), page('B', "blob"), page('E', record(named, "{}"))},
		"a time in a zone":                    {page('S', one), page('E', record(strings.Replace(event1, `05Z`, `05+02:00`, 1), ""))},
		"a time too exact":                    {page('S', one), page('E', record(strings.Replace(event1, `05Z`, `05.000000001Z`, 1), ""))},
		"a blob that did not come":            {page('S', one), page('E', record(named, ""))},
		"another blob":                        {page('S', one), page('B', "another"), page('E', record(named, ""))},
		"a blob that nothing names":           {page('S', one), page('B', "blob"), page('E', record(event1, ""))},
		"a blob before the end":               {page('S', one), page('E', record(event1, "")), page('B', "blob"), page('Z', end1)},
		"a lost blob without a digest":        {page('S', one), page('L', `{"blob":"sha256:x"}`)},
		"chunks before events":                {page('S', one), page('C', record(chunk, ""))},
		"no chunks in a page":                 {page('S', one), page('E', record(event1, "")), page('C', "")},
		"a chunk before the first":            {page('S', one), page('E', record(event1, "")), page('C', record(`{"op":"op_1","n":-1}`, ""))},
		"events after chunks":                 {page('S', one), page('E', record(event1, "")), page('C', record(chunk, "")), page('E', record(strings.ReplaceAll(event1, "1", "2"), ""))},
		"a chunk that is not counted":         {page('S', one), page('E', record(event1, "")), page('C', record(chunk, "")), page('Z', end1)},
		"another count":                       {page('S', one), page('E', record(event1, "")), page('Z', strings.Replace(end1, `:1`, `:2`, 1))},
		"another digest":                      {page('S', one), page('E', record(event1, "{}")), page('Z', end1)},
		"another total":                       {page('S', one), page('E', record(event1, "")), page('Z', end1), page('T', none)},
		"something after the end":             append(slices.Clip(good1), page('S', one)),
		"records without number":              {page('S', one), page('E', record(event1, "")), page('C', strings.Repeat(record(chunk, ""), archive.MaxRecords+1))},
		"a detail without measure":            {page('S', one), page('E', record(event1+strings.Repeat(" ", 64<<10), ""))},
	} {
		_, _, err := read(zip(t, sealed(append([][]byte{page('H', good)}, pages...)...)))
		if !errors.Is(err, archive.ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A length is only a claim until the bytes are there.
func TestALengthAloneTakesNoMemory(t *testing.T) {
	for name, head := range map[string]string{
		"within the limit": "B\x1f\xff\xff\xff",
		"beyond it":        "B\xff\xff\xff\xff",
		"of another page":  "E\x03\xff\xff\xff",
	} {
		b := zip(t, append(sealed(page('H', good), page('S', one)), head...))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _, err := read(b)
		runtime.ReadMemStats(&after)
		if !errors.Is(err, archive.ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 32<<20 {
			t.Errorf("%s: %d MiB for %d bytes", name, took>>20, len(b))
		}
	}
}

func FuzzReader(f *testing.F) {
	whole, _, _ := write(f, sample()...)
	f.Add(whole, false)
	f.Add(whole[:len(whole)/2], false)
	f.Add(sealed(page('S', one), page('E', record(event1, "{}")), page('Z', end1), page('T', total1)), true)
	f.Add(sealed(page('D', record(`{"tenant":"","kind":"k","id":"a","version":1,"created_at":"2026-01-02T03:04:05Z","updated_at":"2026-01-02T03:04:05Z"}`, "{}"))), true)
	f.Add(bytes.Join(forge(f, sample()...)[1:], nil), true)
	f.Fuzz(func(t *testing.T, b []byte, plain bool) {
		if plain { // the pages rather than what packs them, with their seals mended
			b = zip(t, mended(b))
		}
		items, r, err := read(b)
		if err != nil {
			return
		}
		// What is read can be written, and is the same again.
		again, _, total := write(t, items...)
		if total != r.Total() {
			t.Errorf("total = %+v, was %+v", total, r.Total())
		}
		if _, _, err := read(again); err != nil {
			t.Errorf("what was read and written again is refused: %v", err)
		}
	})
}

// mended seals the pages in b anew, whatever is in them.
func mended(b []byte) []byte {
	pages := [][]byte{page('H', good)}
	for len(b) >= 5 {
		n := min(5+int(binary.BigEndian.Uint32(b[1:])), len(b))
		pages = append(pages, b[:n:n])
		b = b[min(n+sha256.Size, len(b)):]
	}
	return sealed(pages...)
}
