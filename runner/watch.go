package runner

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"iter"
)

// MaxWatched bounds the directories of one watch.
const MaxWatched = 8192

// maxChange bounds a change on the wire: a path, escaped.
const maxChange = 64 << 10

// Watch reports the changes in a directory, or of a file. The runner sends a line of
// JSON for each Change.
type Watch struct {
	Path string `json:"path"`
	// Recursive says that directories below are watched too.
	Recursive bool `json:"recursive,omitempty"`
}

// ChangeOp is what happened to a path.
type ChangeOp string

// What can happen to a path. One that is renamed is removed here and created
// there.
const (
	Created  ChangeOp = "create"
	Written  ChangeOp = "write"
	Removed  ChangeOp = "remove"
	Modified ChangeOp = "attrib" // its permissions, owner or times
)

// Change is one thing that happened under a watch.
type Change struct {
	// Path is relative to the watch's, "." for that itself.
	Path string   `json:"path,omitempty"`
	Op   ChangeOp `json:"op,omitempty"`
	// Overflow reports that changes were missed, or that there are more directories than
	// can be watched: clients must read the directory again.
	Overflow bool `json:"overflow,omitempty"`
}

// Changes reads an opened watch until it ends. Leaving the loop does not end it.
func (c *Conn) Changes() iter.Seq2[Change, error] { return changesIn(c) }

func changesIn(r io.Reader) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		lines := bufio.NewScanner(r)
		lines.Buffer(nil, maxChange)
		for lines.Scan() {
			var change Change
			if err := json.Unmarshal(lines.Bytes(), &change); err != nil {
				yield(Change{}, fmt.Errorf("read a change: %w", err))
				return
			}
			if !yield(change, nil) {
				return
			}
		}
		if err := lines.Err(); err != nil {
			yield(Change{}, fmt.Errorf("read a change: %w", err))
		}
	}
}
