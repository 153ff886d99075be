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
		held := 0
		const least, perByte = 1 << 20, 64
		bounded(t, uint64(least+perByte*len(b)), func() {
			held = 0
			for change, err := range changesIn(bytes.NewReader(b)) {
				if err != nil {
					break
				}
				held += len(change.Path)
			}
		})
		if held > 3*len(b) {
			t.Errorf("of %d bytes %d are held", len(b), held)
		}
	})
}
