package v1

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"

	"github.com/dormouse-run/dormouse"
)

// Page is a part of a list.
type Page[T any] struct {
	Data []T `json:"data"`
	// Next is the cursor of the next page; null when this is the last.
	Next *string `json:"next_page"`
}

// list names what a cursor belongs to: which list, whose, in which order, and
// chosen how. A cursor of one list means nothing in another.
type list struct{ digest [listDigest]byte }

const (
	cursorVersion = 1
	listDigest    = 16
	cursorCheck   = 4
	maxCursor     = 1024
)

func newList(parts ...string) list {
	return list{[listDigest]byte([]byte(dormouse.DeriveID("", parts...)))}
}

// cursor spells where the next page begins: after an item of this list. It is
// opaque to clients. Nothing in it is secret, and nobody is let in by it.
func (l list) cursor(after string) *string {
	b := append([]byte{cursorVersion}, l.digest[:]...)
	b = append(b, after...)
	sum := sha256.Sum256(b)
	s := "page_" + base64.RawURLEncoding.EncodeToString(append(b, sum[:cursorCheck]...))
	return &s
}

// after is where a page begins; empty if it is the first.
func (l list) after(q *query) string {
	s := q.text("page")
	if s == "" {
		return ""
	}
	after, ok := l.open(s)
	if !ok {
		q.wrongf("page: %q is no cursor of this list; use next_page as it was given, with the same order and filters", shorten(s))
	}
	return after
}

func (l list) open(s string) (after string, ok bool) {
	const prefix = "page_"
	if len(s) > maxCursor || len(s) < len(prefix) || s[:len(prefix)] != prefix {
		return "", false
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(s[len(prefix):])
	if err != nil || len(b) < 1+listDigest+cursorCheck+1 || b[0] != cursorVersion {
		return "", false
	}
	b, check := b[:len(b)-cursorCheck], b[len(b)-cursorCheck:]
	if sum := sha256.Sum256(b); !bytes.Equal(sum[:cursorCheck], check) || !bytes.Equal(b[1:1+listDigest], l.digest[:]) {
		return "", false
	}
	after = string(b[1+listDigest:])
	return after, dormouse.ValidateText(after) == nil
}

// pageOf cuts a page of at most n from what was found, of which there is one more
// than n if there is another page. name is what the cursor says of an item.
func pageOf[T any](l list, n int, found []T, name func(T) string) Page[T] {
	page := Page[T]{Data: append([]T{}, found[:min(n, len(found))]...)}
	if len(found) > n {
		page.Next = l.cursor(name(found[n-1]))
	}
	return page
}
