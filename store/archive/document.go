package archive

import (
	"errors"
	"fmt"
	"time"

	"github.com/dormouse-run/dormouse"
)

// Digest is of a version: equal digests mean equal versions.
func (v Version) Digest() dormouse.Digest { return dormouse.DigestOf(appendVersion(nil, v)) }

func appendVersion(b []byte, v Version) []byte { return appendRecord(b, dormouse.Encode(v), v.Body) }

func readVersion(detail, text []byte) (v Version, err error) {
	if err := decode(detail, &v); err != nil {
		return v, err
	}
	v.Body = text
	if err := v.Validate(); err != nil {
		return v, err
	}
	for _, t := range []time.Time{v.Created, v.Updated, v.Archived} {
		if t.Location() != time.UTC || !t.Equal(t.Truncate(time.Microsecond)) {
			return v, errors.New("a document has a time that no store keeps")
		}
	}
	return v, nil
}

// follows reports whether v may come right after the version before it: the past of
// a document comes before it, and documents are in order.
func (v Version) follows(last *Version) bool {
	switch {
	case last == nil:
		return true
	case last.Past:
		return v.Ref() == last.Ref() && v.Version > last.Version
	}
	return v.Ref().Compare(last.Ref()) > 0
}

// count adds v to what there is.
func (t *Total) count(v Version) {
	if v.Past {
		t.Versions++
	} else {
		t.Documents++
	}
}

// Documents writes versions of documents, in one page. All of them come before any
// session.
func (w *Writer) Documents(versions []Version) error {
	var body []byte
	for _, v := range versions {
		body = appendVersion(body, v)
		w.total.count(v)
	}
	return w.records(documentsPage, len(versions), body)
}

func (r *Reader) documents(body []byte) (Item, error) {
	var versions Documents
	err := records(body, func(detail, text []byte) error {
		v, err := readVersion(detail, text)
		if err != nil {
			return err
		}
		if !v.follows(r.version) {
			return fmt.Errorf("version %d of %s is not where it belongs", v.Version, v.Ref())
		}
		r.version = &v
		r.total.count(v)
		versions = append(versions, v)
		return nil
	})
	if err == nil && len(versions) == 0 {
		err = errors.New("a page of documents has none")
	}
	return versions, err
}

// half reports whether the past of a document was read and not the document.
func (r *Reader) half() bool { return r.version != nil && r.version.Past }
