package forgeries

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/dormouse-run/dormouse/e2e/harness/rig"
)

// createdIDs are ids that do not exist, or are not the session's.
func createdIDs(h *house) map[string]any {
	own := string(h.me.shot.ID)
	return map[string]any{
		"up":               "../" + own,
		"escaped":          "..%2f" + own,
		"escaped-twice":    "..%252f" + own,
		"nothing":          "",
		"a-dot":            ".",
		"with-a-zero":      own + "\x00",
		"with-a-line":      own + "\nX-Forged: 1",
		"much":             strings.Repeat("s", 64<<10),
		"looks-alike":      strings.Replace(own, "snap_", "snаp_", 1),
		"upper-case":       strings.ToUpper(own),
		"with-a-blank":     own + " ",
		"another-session":  string(h.other.ID),
		"others-snapshot":  string(h.other.shot.ID),
		"a-ref":            string(h.other.shot.Ref),
		"an-object":        map[string]any{"session": h.other.ID, "snapshot": h.other.shot.ID},
		"a-list":           []any{own},
		"a-number":         1,
		"nothing-at-all":   nil,
		"another-provider": map[string]any{"providerId": "r2", "ref": map[string]any{"key": own}},
	}
}

// ids are cases of what is named over HTTP.
func ids() []Case {
	var cases []Case
	names := slices.Sorted(maps.Keys(createdIDs(&house{me: new(person), other: &person{Session: new(rig.Session)}, Client: nil})))
	for _, name := range names {
		cases = append(cases, Case{"id-" + name, "an id over HTTP that names none of the session's snapshots", func(ctx context.Context, w *World) (string, error) {
			return w.Strict.byID(ctx, createdIDs(w.Strict)[name])
		}})
	}
	return append(cases, Case{"id-more-fields", "a request with a member nobody knows", func(ctx context.Context, w *World) (string, error) {
		h := w.Strict
		var seen []string
		for _, verb := range []string{"restore", "branch", "snapshots"} {
			body := map[string]any{"snapshot": h.me.shot.ID, "session": h.other.ID}
			if verb == "snapshots" {
				body = map[string]any{"session": h.other.ID}
			}
			if err := h.refused(ctx, http.MethodPost, h.me.Path("/"+verb), body, &seen); err != nil {
				return "", err
			}
		}
		return strings.Join(seen, ", "), nil
	}})
}

// byID tries an id wherever one is taken.
func (h *house) byID(ctx context.Context, id any) (string, error) {
	var seen []string
	post := []string{"restore", "branch"}
	if id == nil || id == "" {
		post = post[:1] // a branch without one is of the present
	}
	for _, verb := range post {
		if err := h.refused(ctx, http.MethodPost, h.me.Path("/"+verb), map[string]any{"snapshot": id}, &seen); err != nil {
			return "", err
		}
	}
	text, ok := id.(string)
	if !ok || text == "" || text == "." {
		return strings.Join(seen, ", "), nil // it is another path
	}
	at := h.me.Path("/snapshots/" + url.PathEscape(text))
	for _, path := range []string{at, at + "/diff", at + "/export", h.me.Path("/snapshots/"+string(h.me.shot.ID)) + "/diff?to=" + url.QueryEscape(text)} {
		if err := h.refused(ctx, http.MethodGet, path, nil, &seen); err != nil {
			return "", err
		}
	}
	// Deleting what does not exist succeeds; the snapshots of others are checked at the
	// end.
	if _, err := h.Once(ctx, http.MethodDelete, at, nil, nil); err != nil && !refusal(err) {
		return "", err
	}
	return strings.Join(seen, ", "), nil
}

// refused sends a request that must be refused, and notes how.
func (h *house) refused(ctx context.Context, method, path string, body any, seen *[]string) error {
	status, err := h.Once(ctx, method, path, body, nil)
	if err == nil || !refusal(err) {
		return fmt.Errorf("%s %.100s answered %d: %w", method, path, status, err)
	}
	*seen = append(*seen, fmt.Sprint(status))
	return nil
}

// refusal reports whether an answer says that the request is at fault.
func refusal(err error) bool {
	r := rig.Refused(err)
	return r != nil && r.Status >= http.StatusBadRequest && r.Status < http.StatusInternalServerError
}
