package rest

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/dormouse-run/dormouse"
)

// query reads the URL's parameters, refusing any that a route does not have. A
// route says "tag+" of a name that may be given again and again, and
// "metadata.*" of every name that begins so.
func (c call) query(known ...string) (url.Values, error) {
	c.ReadsParams(known...)
	q, err := url.ParseQuery(c.R.URL.RawQuery)
	if err != nil {
		return nil, fmt.Errorf("the query cannot be read: %w", dormouse.ErrInvalid)
	}
	for name, values := range q {
		repeatable := slices.Contains(known, name+"+")
		switch {
		case !repeatable && !slices.ContainsFunc(known, func(k string) bool { return matchesParam(k, name) }):
			return nil, fmt.Errorf("unknown parameter %q: %w", shorten(name), dormouse.ErrInvalid)
		case len(values) > 1 && !repeatable:
			return nil, fmt.Errorf("parameter %q is given twice: %w", shorten(name), dormouse.ErrInvalid)
		}
		if err := dormouse.ValidateText(name + strings.Join(values, "")); err != nil {
			return nil, fmt.Errorf("parameter %q: %w", shorten(name), err)
		}
	}
	return q, nil
}

// matchesParam reports whether a route that knows the parameters known has this one.
func matchesParam(known, name string) bool {
	if prefix, ok := strings.CutSuffix(known, "*"); ok {
		return strings.HasPrefix(name, prefix)
	}
	return known == name
}

func flag(q url.Values, name string) (bool, error) {
	switch q.Get(name) {
	case "":
		return q.Has(name), nil
	case "true", "1":
		return true, nil
	case "false", "0":
		return false, nil
	}
	return false, fmt.Errorf("parameter %q must be true or false: %w", name, dormouse.ErrInvalid)
}

// limit reads how many are wanted: at least one, and never more than most.
func limit(q url.Values, usual, most int) (int, error) {
	if !q.Has("limit") {
		return usual, nil
	}
	n, err := strconv.Atoi(q.Get("limit"))
	if err != nil || n < 1 {
		return 0, fmt.Errorf("parameter \"limit\" must be a number from 1 to %d: %w", most, dormouse.ErrInvalid)
	}
	return min(n, most), nil
}

func cursor(name, value string) (uint64, error) {
	n, err := strconv.ParseUint(value, 10, 63)
	if err != nil {
		return 0, fmt.Errorf("%s must be the number of an event, not %q: %w", name, shorten(value), dormouse.ErrInvalid)
	}
	return n, nil
}
