package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/dormouse-run/dormouse"
)

// TreeStatus is the HTTP trailer with the JSON of Copied. A tar without it is incomplete.
const TreeStatus = "Tree-Status"

// Copied counts what was copied in a tar of files.
type Copied struct {
	// Files counts entries of every kind, Bytes the content of the files.
	Files int   `json:"files"`
	Bytes int64 `json:"bytes"`
	// Changed counts the files that became shorter while they were read; the tar has
	// zeroes in place of the missing bytes.
	Changed int `json:"changed,omitempty"`
}

// Files is a tar of files that is being copied out of a sandbox.
type Files struct {
	io.ReadCloser
	trailer func() string
}

// Copied returns what the tar contained. It is valid after the tar was read to its end; an
// error means that the tar is incomplete.
func (f *Files) Copied() (held Copied, err error) {
	if json.Unmarshal([]byte(f.trailer()), &held) != nil {
		return held, errors.New("the tar was cut off")
	}
	return held, nil
}

// GetFiles copies a file, or a directory and all below it, out of a session's sandbox,
// which it wakes. A path is below the workspace unless it begins with a slash.
func (c *Client) GetFiles(ctx context.Context, id dormouse.SessionID, path string) (*Files, error) {
	res, err := c.Do(ctx, http.MethodGet, of(id, "files")+"?"+query("path", path).Encode(), nil) //nolint:bodyclose // the caller closes it
	if err != nil {
		return nil, err
	}
	return &Files{res.Body, func() string { return res.Trailer.Get(TreeStatus) }}, nil
}

// PutFiles unpacks a tar below a directory of a session's sandbox, which it wakes. The
// directory is created if it is missing.
func (c *Client) PutFiles(ctx context.Context, id dormouse.SessionID, dir string, tar Tar) (held Copied, err error) {
	return held, c.wait(ctx, http.MethodPut, of(id, "files")+"?"+query("path", dir).Encode(), tar, &held)
}
