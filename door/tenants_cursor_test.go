//go:build linux

package door_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// cursor is where the next page of a tenant's list begins; empty if there is none.
func (tr *trial) cursor(of *tenantData, method, pattern string, s sample) string {
	tr.t.Helper()
	if method != http.MethodGet {
		return ""
	}
	s.query = strings.TrimPrefix(s.query+"&limit=1", "&")
	var page map[string]any
	_ = json.Unmarshal(of.ask(of.own(method, pattern, s)).body, &page)
	for _, name := range []string{"next", "next_page"} {
		if next, ok := page[name].(string); ok {
			return next
		}
	}
	return ""
}

// forge has a cursor go on after something else. Its checksum is no secret, so
// that any client can.
func forge(cursor string, change func(id string) string) string {
	const prefix, check = "page_", 4
	b, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(cursor, prefix))
	if err != nil || !strings.HasPrefix(cursor, prefix) || len(b) < check {
		return cursor
	}
	b = []byte(anyID.ReplaceAllStringFunc(string(b[:len(b)-check]), change))
	sum := sha256.Sum256(b)
	return prefix + base64.RawURLEncoding.EncodeToString(append(b, sum[:check]...))
}

// forged goes on in the caller's own list after what is theirs.
func (tr *trial) forged(method, pattern string, s sample, p place) {
	tr.t.Helper()
	cursor := tr.cursor(tr.own, method, pattern, s)
	if p.name != "page" || cursor == "" {
		return
	}
	var their string
	sent := forge(cursor, func(id string) string {
		their = tr.like(id)
		return their
	})
	if their == "" {
		return // it names nothing that another tenant could have
	}
	tr.forgeries++
	for try := 1; ; try++ {
		ask := func(cursor string) string {
			a := tr.own.own(method, pattern, s).with(p, cursor)
			got := tr.own.ask(a)
			if got.status == http.StatusOK { // what is on the page, whose times pass
				return fmt.Sprint(got.status, anyID.FindAllString(string(got.body), -1))
			}
			return fmt.Sprint(got.status, " ", a.said(got))
		}
		none := func() string { return ask(forge(cursor, never)) }
		before, got, after := none(), ask(sent), none()
		const most = 20
		if before != after && try < most {
			continue // something of the caller's changed meanwhile
		}
		if got != before {
			tr.leak("%s %s: a cursor after %s gives %s, and one after what is not there %s", method, pattern, their, cut(got), cut(before))
		}
		return
	}
}

// like is theirs of the kind of an id.
func (tr *trial) like(id string) string {
	prefix, _, _ := strings.Cut(id, "_")
	i := slices.IndexFunc(tr.secret, func(s string) bool { return strings.HasPrefix(s, prefix+"_") })
	if i < 0 {
		return ""
	}
	return tr.secret[i]
}
