package v1

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/catalog"
)

// Page is a part of a list.
type Page[T any] struct {
	Data []T `json:"data"`
	// Next is the cursor of the next page; null when this is the last.
	Next *string `json:"next_page"`
}

// list names what a cursor belongs to: which list, of which tenant, in which order and
// with which filters. A cursor of one list is refused by another.
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

// cursor encodes where the next page begins: after an item of this list. It is
// opaque to clients. Nothing in it is secret, and it grants no access.
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
	b, err := base64.RawURLEncoding.DecodeString(s[len(prefix):])
	if err != nil || len(b) < 1+listDigest+cursorCheck+1 || b[0] != cursorVersion {
		return "", false
	}
	after = string(b[1+listDigest : len(b)-cursorCheck])
	// Each cursor has one encoding, which has its checksum and its list.
	return after, *l.cursor(after) == s && dormouse.ValidateText(after) == nil
}

// listOf answers with a page of the catalog. A cursor has the last item of the page
// before and its creation time, so that a list goes on even if that item has been
// deleted.
func listOf[T any](c call, l list, q *query, want catalog.Query, find func(context.Context, catalog.Query) ([]T, error), name func(T) (string, time.Time)) error {
	made, id, _ := strings.Cut(l.after(q), " ")
	n := want.Limit
	want.After, want.Limit = id, n+1
	if q.err != nil {
		return q.err
	}
	ctx, cancel := c.Context()
	defer cancel()
	found, err := find(ctx, want)
	if id != "" && errors.Is(err, dormouse.ErrNotFound) {
		t, bad := time.Parse(time.RFC3339Nano, made)
		if bad != nil {
			return invalidf("page: is no cursor of this list")
		}
		want.After, want.CreatedUntil = "", t
		found, err = find(ctx, want)
	}
	if err != nil {
		return err
	}
	return c.Answer(http.StatusOK, pageOf(l, n, found, func(v T) string {
		id, made := name(v)
		return formatTime(made) + " " + id
	}))
}

// formatTime is a time in a cursor, with all of its digits.
func formatTime(t time.Time) string { return t.Format(time.RFC3339Nano) }

// pageOf cuts a page of at most n from what was found, of which there is one more
// than n if there is another page. name is what the cursor says of an item.
func pageOf[T any](l list, n int, found []T, name func(T) string) Page[T] {
	page := Page[T]{Data: append([]T{}, found[:min(n, len(found))]...)}
	if len(found) > n {
		page.Next = l.cursor(name(found[n-1]))
	}
	return page
}
