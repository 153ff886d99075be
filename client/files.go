package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/dormouse-run/dormouse"
)

// TreeStatus is the trailer that says what a tar of files held. A tar without it is not
// whole.
const TreeStatus = "Tree-Status"

// Copied is what a tar of files held.
type Copied struct {
	// Files counts entries of every kind, Bytes their content.
	Files int   `json:"files"`
	Bytes int64 `json:"bytes"`
	// Changed counts the files that shrank while they were read; zeroes stand for
	// what they lost.
	Changed int `json:"changed,omitempty"`
}

// Files is a tar of files on its way out of a sandbox.
type Files struct {
	io.ReadCloser
	trailer func() string
}

// Copied is what the tar held, once it was read to its end. The error says that it was cut
// off.
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
// directory is made if it is missing.
func (c *Client) PutFiles(ctx context.Context, id dormouse.SessionID, dir string, tar Tar) (held Copied, err error) {
	return held, c.wait(ctx, http.MethodPut, of(id, "files")+"?"+query("path", dir).Encode(), tar, &held)
}
