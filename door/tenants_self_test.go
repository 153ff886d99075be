//go:build linux

package door_test

import (
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/auth"
	"github.com/dormouse-run/dormouse/door"
)

// careless is a door whose routes do not ask whose an id is.
func careless(h *testServer) *door.Router {
	router := &door.Router{
		Logger: slog.New(slog.DiscardHandler), Witness: h.witness,
		Admit: func(c *door.Call, _ bool) error {
			c.Who = auth.Principal{Tenant: strings.TrimPrefix(c.R.Header.Get("Authorization"), "Bearer ")}
			return nil
		},
		ErrorResponse: func(err error, _ string) door.ErrorResponse {
			r := door.ReplyTo(err)
			return door.ErrorResponse{Status: r.Status, Body: r.Message}
		},
	}
	show := func(c *door.Call, id string) error {
		return c.AnswerWith(h.sessions.Row(c.R.Context(), dormouse.SessionID(id)))
	}
	router.Handle(door.Route{Pattern: "/more/path/{what}", Methods: door.Methods{
		http.MethodGet: func(c *door.Call) error { return show(c, c.R.PathValue("what")) },
	}})
	router.Handle(door.Route{Pattern: "/more/query", Methods: door.Methods{
		http.MethodGet: func(c *door.Call) error {
			c.ReadsParams("what")
			return show(c, c.R.URL.Query().Get("what"))
		},
	}})
	router.Handle(door.Route{Pattern: "/more/body", Methods: door.Methods{
		http.MethodPost: func(c *door.Call) error {
			var req struct {
				What dormouse.SessionID `json:"what"`
			}
			c.ReadsBody(&req)
			b := make([]byte, c.R.ContentLength)
			_, _ = c.R.Body.Read(b)
			_, id, _ := strings.Cut(string(b), `":"`)
			return show(c, strings.TrimSuffix(id, `"}`))
		},
	}})
	return router
}

// The trial needs to be told nothing of a route to find that it asks for no tenant.
func TestARouteThatChecksNoTenantIsFound(t *testing.T) {
	h := newServer(t, careless)
	h.routes = slices.DeleteFunc(h.routes, func(r door.Route) bool { return !strings.HasPrefix(r.Pattern, "/more/") })
	tr := newTrial(h)
	tr.run()
	for _, at := range []string{"GET /more/path/{what} path what = " + tr.ids["sessions"], "GET /more/query query what = " + tr.ids["sessions"], "POST /more/body body what = " + tr.ids["sessions"]} {
		if !slices.ContainsFunc(tr.leaks, func(leak string) bool { return strings.HasPrefix(leak, at) }) {
			t.Errorf("%s was not found among %d leaks", at, len(tr.leaks))
		}
	}
}
