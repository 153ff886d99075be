//go:build linux

package snapshot_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/dormouse-run/dormouse/internal/atomicfile"
)

// What a step costs that changed ten small files, beside the two syncs it waits
// for.
func BenchmarkKeepTenSmallFiles(b *testing.B) {
	h := open(b)
	for n := 0; b.Loop(); n++ {
		b.StopTimer()
		var files []string
		for i := range 10 {
			files = append(files, fmt.Sprintf("f%d", i), fmt.Sprintf("%d of %d", i, n))
		}
		g := h.staged(files...)
		b.StartTimer()
		_, err := h.Put(b.Context(), g)
		must(b, err)
	}
}

func BenchmarkTwoSyncs(b *testing.B) {
	at := b.TempDir()
	for n := 0; b.Loop(); n++ {
		must(b, atomicfile.Write(filepath.Join(at, fmt.Sprint(n)), make([]byte, 700), 0o600))
	}
}

func BenchmarkUseAgain(b *testing.B) {
	h := open(b)
	l := h.keep("a", "1")
	h.use(1, l)
	for b.Loop() {
		h.use(1, l)
	}
}

func BenchmarkUse(b *testing.B) {
	h := open(b)
	l := h.keep("a", "1")
	for b.Loop() {
		h.use(1, l)
		must(b, os.Remove(filepath.Join(h.dir, "uses", string(owner)+"-1")))
	}
}
