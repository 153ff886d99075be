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
	// Status is what was answered; 0 as long as nothing was.
	Status int
	// Stream says that the answer took as long as its client listened.
	Stream bool
	// reason is why, when it is not the client's doing.
	reason  error
	frame   *Frame
	witness Witness
}

// answerWithin bounds how long an answer may take. Past it nobody knows whether
// what was asked for will still be done.
const answerWithin = 60 * time.Second

// Context is the request's, with an end.
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
	// With its length, an answer is whole for the client as soon as it is flushed.
	c.W.Header().Set("Content-Length", strconv.Itoa(len(b)))
	c.W.WriteHeader(status)
	// A client that left is not told; what it asked for is done all the same.
	_, _ = c.W.Write(b)
	_ = http.NewResponseController(c.W).Flush()
}

// None answers that there is nothing to say.
func (c *Call) None() {
	c.Status = http.StatusNoContent
	c.W.WriteHeader(http.StatusNoContent)
}

// refuse tells the client why not, in the door's words.
func (c *Call) refuse(err error) {
	told := c.frame.Tell(err, c.ID)
	if told.Status >= http.StatusInternalServerError {
		c.reason = err
	}
	if c.Status != 0 {
		c.reason = errors.Join(err, errors.New("after the answer had begun"))
		return
	}
	for name, value := range told.Headers {
		c.W.Header().Set(name, value)
	}
	c.Send(told.Status, append(dormouse.Encode(told.Body), '\n'))
}
