//go:build linux

package wall

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/dormouse-run/dormouse/e2e/adversary/impostor"
)

// plain is b and everything that is packed in it, unpacked, as far as bytes go.
func plain(b []byte, depth int) [][]byte {
	const deepest, most = 3, 64 << 20
	all := [][]byte{b}
	if depth > deepest {
		return all
	}
	var r io.Reader
	switch {
	case bytes.HasPrefix(b, []byte("\x1f\x8b")):
		z, err := gzip.NewReader(bytes.NewReader(b))
		if err != nil {
			return all
		}
		r = z
	case bytes.HasPrefix(b, []byte("\x28\xb5\x2f\xfd")):
		z, err := zstd.NewReader(bytes.NewReader(b), zstd.WithDecoderConcurrency(1))
		if err != nil {
			return all
		}
		defer z.Close()
		r = z
	case len(b) > 512 && bytes.HasPrefix(b[257:], []byte("ustar")):
		entries := tar.NewReader(bytes.NewReader(b))
		for {
			if _, err := entries.Next(); err != nil {
				return all
			}
			inner, _ := io.ReadAll(io.LimitReader(entries, most)) // what there is of it
			all = append(all, plain(inner, depth+1)...)
		}
	default:
		return all
	}
	inner, _ := io.ReadAll(io.LimitReader(r, most)) // what there is of it
	return append(all, plain(inner, depth+1)...)
}

// mostWords is how long a text about something may be that a sandbox had a say in.
const mostWords = 4096

// errorNames are the names of fields that describe errors.
var errorNames = []string{"error", "message", "detail", "reason", "lost", "why"}

// taken looks in an answer or an event for texts of a sandbox that were made part of
// what the server says, and were neither cut nor escaped.
func taken(b []byte) (found []string) {
	var doc any
	if json.Unmarshal(b, &doc) != nil {
		return nil
	}
	var walk func(name string, v any)
	walk = func(name string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for k, inner := range v {
				walk(k, inner)
			}
		case []any:
			for _, inner := range v {
				walk(name, inner)
			}
		case string:
			switch {
			case !slices.Contains(errorNames, name):
			case len(v) > mostWords:
				found = append(found, fmt.Sprintf("%q of %d bytes", name, len(v)))
			case strings.ContainsFunc(v, func(r rune) bool { return r == '\x1b' || r == 0 || r == '\r' }):
				found = append(found, fmt.Sprintf("%q has control characters: %.60q", name, v))
			}
		}
	}
	walk("", doc)
	return found
}

// takenByLog looks for the same in lines of the log.
func takenByLog(log []byte) (found []string) {
	for line := range bytes.Lines(log) {
		switch {
		case bytes.HasPrefix(bytes.TrimSpace(line), []byte(impostor.Forged)):
			found = append(found, "a line of the log begins with it")
		case bytes.ContainsRune(line, '\x1b'):
			found = append(found, "a line of the log has control characters")
		case len(line) > 2*mostWords:
			found = append(found, fmt.Sprintf("a line of the log has %d bytes", len(line)))
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}
