package runner

import (
	"bytes"
	"testing"
)

// FuzzChanges reads what a sandbox says has changed.
func FuzzChanges(f *testing.F) {
	f.Add([]byte("{\"path\":\"a\",\"op\":\"write\"}\n{\"overflow\":true}\n"))
	f.Add([]byte("{\"path\":\"\\u001b\"}\n[]\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		before := allocated()
		held := 0
		for change, err := range changesIn(bytes.NewReader(b)) {
			if err != nil {
				break
			}
			held += len(change.Path)
		}
		const least, perByte = 1 << 20, 64
		if took := allocated() - before; took > uint64(least+perByte*len(b)) || held > 3*len(b) {
			t.Errorf("%d bytes took %d, and hold %d", len(b), took, held)
		}
	})
}
