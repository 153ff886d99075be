package door

import (
	"net/http"
	"reflect"
)

// Witness records what handlers read of requests, and what they answer. The tests of
// tenants need to know every place where a request can hold an id, and the contract of
// the API what each route takes and answers; only the handlers know both.
type Witness interface {
	// Param records a parameter of the URL, under the name that the route has for it.
	Param(r *http.Request, name string)
	// Body records the type that a body, or a JSON document in a parameter, is decoded
	// into.
	Body(r *http.Request, into reflect.Type)
	// Answer records the type of an answer.
	Answer(r *http.Request, of reflect.Type)
}

// ReadsParams records which parameters of the URL are read.
func (c *Call) ReadsParams(names ...string) {
	if w := c.witness; w != nil {
		for _, name := range names {
			w.Param(c.R, name)
		}
	}
}

// ReadsBody records what a body is decoded into.
func (c *Call) ReadsBody(v any) {
	if w := c.witness; w != nil {
		w.Body(c.R, reflect.TypeOf(v).Elem())
	}
}
