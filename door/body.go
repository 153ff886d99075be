package door

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	"github.com/dormouse-run/dormouse"
)

// ReadBody reads the body of a request, which has at most limit bytes.
func (c *Call) ReadBody(limit int64) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(c.W, c.R.Body, limit))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, fmt.Errorf("the body is over %d bytes: %w", limit, dormouse.ErrTooLarge)
	}
	if err != nil {
		return nil, fmt.Errorf("the body could not be read: %w", dormouse.ErrInvalid)
	}
	return body, nil
}

// IsJSON reports whether the headers of a request announce JSON in UTF-8 that is
// not compressed.
func IsJSON(h http.Header) bool {
	kind, params, err := mime.ParseMediaType(h.Get("Content-Type"))
	charset, given := params["charset"]
	return err == nil && kind == "application/json" && (!given || strings.EqualFold(charset, "utf-8")) && h.Get("Content-Encoding") == ""
}
