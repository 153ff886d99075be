package v1

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dormouse-run/dormouse"
)

// query is the parameters of a URL. Those that a route does not have are ignored,
// as clients add some of their own; those it has must be right. What is wrong is
// kept until the end, so that a route reads them all and then asks once.
type query struct {
	call   call
	values url.Values
	err    error
}

func (c call) query() *query {
	q := &query{call: c}
	if q.values, q.err = url.ParseQuery(c.R.URL.RawQuery); q.err != nil {
		q.err = invalidf("the query cannot be read")
	}
	return q
}

func (q *query) wrongf(format string, args ...any) {
	if q.err == nil {
		q.err = invalidf(format, args...)
	}
}

// text is one parameter; empty if it was not given.
func (q *query) text(name string) string {
	q.call.ReadsParams(name)
	all := q.values[name]
	if len(all) == 0 {
		return ""
	}
	if len(all) > 1 {
		q.wrongf("%s: is given twice", name)
	}
	if err := dormouse.ValidateText(all[0]); err != nil {
		q.wrongf("%s: %s", name, err)
	}
	return all[0]
}

// number is a whole number from least to most; usual if it was not given.
func (q *query) number(name string, usual, least, most int) int {
	s := q.text(name)
	if s == "" {
		return usual
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < least || n > most {
		q.wrongf("%s: must be a whole number from %d to %d, not %q", name, least, most, shorten(s))
		return usual
	}
	return n
}

// limit is how many are wanted on a page.
func (q *query) limit(usual, most int) int { return q.number("limit", usual, 1, most) }

// limitOrZero is as limit where the API takes 0 for what was not given.
func (q *query) limitOrZero(usual, most int) int {
	return cmp.Or(q.number("limit", usual, 0, most), usual)
}

//nolint:unparam // the only one there is now
func (q *query) flag(name string) bool {
	switch s := q.text(name); s {
	case "", "false":
		return false
	case "true":
		return true
	default:
		q.wrongf("%s: must be true or false, not %q", name, shorten(s))
		return false
	}
}

// time returns a time, such as that of created_at[gte]; zero if it was not given.
func (q *query) time(name string) time.Time {
	s := q.text(name)
	if s == "" {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		q.wrongf("%s: must be a time such as 2026-01-31T12:00:00Z, not %q", name, shorten(s))
	}
	return t.UTC()
}

// list is every value of name[], each of which must be one of known.
func (q *query) list(name string, known ...string) []string {
	q.call.ReadsParams(name, name+"[]")
	all := slices.Concat(q.values[name+"[]"], q.values[name])
	for _, s := range all {
		if !slices.Contains(known, s) {
			q.wrongf("%s[]: must be one of %s, not %q", name, strings.Join(known, ", "), shorten(s))
		}
	}
	return all
}

// word is one of known; the first if it was not given.
func (q *query) word(name string, known ...string) string {
	s := q.text(name)
	if s == "" {
		return known[0]
	}
	if !slices.Contains(known, s) {
		q.wrongf("%s: must be one of %s, not %q", name, strings.Join(known, ", "), shorten(s))
	}
	return s
}
