//go:build linux

package inside

import (
	"bytes"
	"testing"

	"github.com/dormouse-run/dormouse/runner"
)

func FuzzEdit(f *testing.F) {
	f.Add([]byte("a\r\nb\r\n"), []byte("a\nb"), []byte("x"), false)
	f.Add([]byte("aaa"), []byte("a"), []byte("aa"), true)
	f.Fuzz(func(t *testing.T, content, was, now []byte, all bool) {
		before := bytes.Clone(content)
		edited, n, err := applyEdit(runner.Edit{Old: was, New: now, All: all}, content)
		if !bytes.Equal(before, content) {
			t.Error("what was given was changed")
		}
		if err != nil {
			return
		}
		if n < 1 || n > 1 && !all {
			t.Errorf("%d places were replaced", n)
		}
		if hasCRLF(content) && !bytes.ContainsRune(was, '\r') && !bytes.ContainsRune(now, '\r') && bytes.Contains(edited, []byte("\n")) && !hasCRLF(edited) {
			t.Errorf("%q became %q, whose lines end in two ways", content, edited)
		}
	})
}

func FuzzReadLines(f *testing.F) {
	f.Add([]byte("a\nb\n"), int64(1), int64(-1))
	f.Add([]byte("a\nb"), int64(2), int64(2))
	f.Fuzz(func(t *testing.T, content []byte, first, last int64) {
		if first < 1 || last != -1 && last < first {
			return
		}
		res, err := readLines(bytes.NewReader(content), first, last)
		lines := bytes.SplitAfter(content, []byte("\n"))
		if n := len(lines); len(lines[n-1]) == 0 {
			lines = lines[:n-1]
		}
		if beyond := first > 1 && first > int64(len(lines)); beyond != (err != nil) {
			t.Fatalf("lines %d to %d of %d: %v", first, last, len(lines), err)
		}
		if err != nil || len(lines) == 0 {
			return
		}
		end := int64(len(lines))
		if last >= 0 {
			end = min(end, last)
		}
		if want := bytes.Join(lines[first-1:end], nil); !bytes.Equal(want[:min(len(want), runner.MaxText)], res.Output) {
			t.Errorf("lines %d to %d are %q, want %q", first, last, res.Output, want)
		}
	})
}
