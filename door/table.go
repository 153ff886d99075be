package door

import (
	"net/http"
	"reflect"
	"slices"

	"github.com/dormouse-run/dormouse/auth"
)

// Authenticator says who asks.
type Authenticator interface {
	// Authenticate returns who sent an Authorization header.
	Authenticate(header string) (auth.Principal, bool)
	// Recognize returns whose token this is.
	Recognize(token string) (auth.Principal, bool)
}

// Table is the routes of one door. It is the only way to add one, so that whoever
// reads it has seen every way in.
type Table struct {
	Frame  Frame
	mux    http.ServeMux
	routes []Route
}

// Handle adds a route.
func (t *Table) Handle(route Route) {
	t.routes = append(t.routes, route)
	t.mux.HandleFunc(route.Pattern, func(w http.ResponseWriter, r *http.Request) { t.Frame.Serve(w, r, route) })
}

// Routes is every way in.
func (t *Table) Routes() []Route { return slices.Clone(t.routes) }

// ServeHTTP carries a request through the route that is meant.
func (t *Table) ServeHTTP(w http.ResponseWriter, r *http.Request) { t.mux.ServeHTTP(w, r) }

// Witness is told what handlers read of requests, and what they answer. Nothing else
// knows everywhere an id may stand, which is what tests of tenants need to know, and
// what each route promises to its clients.
type Witness interface {
	// Param is told of a parameter of the URL, as the route spells it.
	Param(r *http.Request, name string)
	// Body is told of the type that a body, or a JSON document in a parameter, is decoded
	// into.
	Body(r *http.Request, into reflect.Type)
	// Answer is told of the type of an answer.
	Answer(r *http.Request, of reflect.Type)
}

// ReadsParams says which parameters of the URL are read.
func (c *Call) ReadsParams(names ...string) {
	if w := c.witness; w != nil {
		for _, name := range names {
			w.Param(c.R, name)
		}
	}
}

// ReadsBody says what a body is decoded into.
func (c *Call) ReadsBody(v any) {
	if w := c.witness; w != nil {
		w.Body(c.R, reflect.TypeOf(v).Elem())
	}
}
