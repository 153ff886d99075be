package door

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/auth"
)

// Call is one request on its way through a door.
type Call struct {
	W   http.ResponseWriter
	R   *http.Request
	ID  string
	Who auth.Principal
	// Status is that of the response; 0 before there is one.
	Status int
	// Stream says that the response lasted as long as its client listened.
	Stream bool
	// reason is why the request failed, if that is not the client's fault.
	reason  error
	router  *Router
	witness Witness
}

// answerWithin bounds how long an answer may take. After that the outcome of the request
// is unknown.
const answerWithin = 60 * time.Second

// Context is the request's, with that timeout.
func (c *Call) Context() (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(c.R.Context(), answerWithin, dormouse.ErrUnknownOutcome)
}

// Answer sends v and returns once it is on its way.
func (c *Call) Answer(status int, v any) error {
	if w := c.witness; w != nil && v != nil {
		w.Answer(c.R, reflect.TypeOf(v))
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // an event is the same bytes in a page and in a stream
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	c.Send(status, b.Bytes())
	return nil
}

// AnswerWith sends v, unless there is an error.
func (c *Call) AnswerWith(v any, err error) error {
	if err != nil {
		return err
	}
	return c.Answer(http.StatusOK, v)
}

// Send sends what is JSON already.
func (c *Call) Send(status int, b []byte) {
	c.Status = status
	c.W.Header().Set("Content-Type", "application/json")
	// With its length, an answer is complete for the client as soon as it is flushed.
	c.W.Header().Set("Content-Length", strconv.Itoa(len(b)))
	c.W.WriteHeader(status)
	// A client that has left gets no answer; what it asked for is done all the same.
	_, _ = c.W.Write(b)
	_ = http.NewResponseController(c.W).Flush()
}

// NoContent answers without a body.
func (c *Call) NoContent() {
	c.Status = http.StatusNoContent
	c.W.WriteHeader(http.StatusNoContent)
}

// refuse answers with an error, as the door's API has it.
func (c *Call) refuse(err error) {
	response := c.router.ErrorResponse(err, c.ID)
	if response.Status >= http.StatusInternalServerError {
		c.reason = err
	}
	if c.Status != 0 {
		c.reason = errors.Join(err, errors.New("after the answer had begun"))
		return
	}
	for name, value := range response.Headers {
		c.W.Header().Set(name, value)
	}
	c.Send(response.Status, append(dormouse.Encode(response.Body), '\n'))
}
