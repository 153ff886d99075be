package inside

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// heard is what comes of a text that a shell printed in pieces of a size.
func heard(t *testing.T, text string, size int) (printed string, reports []string) {
	t.Helper()
	var out bytes.Buffer
	s := &shellOutput{mark: []byte("\x00mark"), report: func(seq uint64, code int) bool {
		if code < 0 || code > 255 {
			t.Fatalf("code %d", code)
		}
		reports = append(reports, fmt.Sprint(seq, ":", code))
		return true
	}}
	s.attach(&out)
	for rest := text; rest != ""; {
		n := min(size, len(rest))
		if m, err := s.Write([]byte(rest[:n])); m != n || err != nil {
			t.Fatalf("wrote %d of %d: %v", m, n, err)
		}
		if len(s.partial) > len(s.mark)+maxStatus {
			t.Fatalf("holds %d bytes", len(s.partial))
		}
		rest = rest[n:]
	}
	s.detach(true)
	return out.String(), reports
}

func FuzzStatus(f *testing.F) {
	f.Add("hello\x00mark1 0\nmore\x00mark2 255\n", uint8(3))
	f.Add("\x00mark1 256\n\x00mark18446744073709551616 1\n\x00mark-1 0\n\x00mark 1 0\n\x00mark7 7\n", uint8(1))
	f.Add("\x00\x00mar\x00mark"+strings.Repeat("1", 100)+" 0\n\x00mark3 4\n\x00mark5", uint8(40))
	f.Fuzz(func(t *testing.T, text string, piece uint8) {
		printed, reports := heard(t, text, len(text)+1)
		if p, r := heard(t, text, int(piece)+1); p != printed || fmt.Sprint(r) != fmt.Sprint(reports) {
			t.Errorf("in pieces %q %v, whole %q %v", p, r, printed, reports)
		}
		// What is not printed are the reports, and nothing else.
		if len(reports) == 0 && printed != text {
			t.Errorf("printed %q of %q", printed, text)
		}
		if n := strings.Count(text, "\x00mark"); len(reports) > n {
			t.Errorf("%d reports of %d marks", len(reports), n)
		}
	})
}

func TestStatusIsFoundAmongGarbage(t *testing.T) {
	text := "x\x00mark1 0\n\x00\n\x00mark2 256\n\x00mark3 1 1\n\x00mark" + strings.Repeat("4", 1000) + " 1\n\x00mark5 12\ny"
	for _, size := range []int{1, 2, 7, 10_000} {
		printed, reports := heard(t, text, size)
		if want := "[1:0 5:12]"; fmt.Sprint(reports) != want {
			t.Errorf("in pieces of %d: %v, want %s", size, reports, want)
		}
		if want := strings.NewReplacer("\x00mark1 0\n", "", "\x00mark5 12\n", "").Replace(text); printed != want {
			t.Errorf("in pieces of %d: printed %q", size, printed)
		}
	}
}
