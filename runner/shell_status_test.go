package runner

import (
	"fmt"
	"strings"
	"testing"
)

func FuzzStatus(f *testing.F) {
	f.Add("1 0\n2 255\n", uint8(3))
	f.Add("1 256\n18446744073709551616 1\n-1 0\n+1 0\n 1 0\n1  0\n1\n\n7 7\n", uint8(1))
	f.Add(strings.Repeat("1", 100)+" 0\n3 4\n", uint8(40))
	f.Fuzz(func(t *testing.T, text string, piece uint8) {
		read := func(size int) (got []string) {
			s := &statusReader{report: func(seq uint64, code int) {
				if code < 0 || code > 255 {
					t.Fatalf("code %d", code)
				}
				got = append(got, fmt.Sprint(seq, " ", code))
			}}
			for rest := text; rest != ""; {
				n := min(size, len(rest))
				if m, err := s.Write([]byte(rest[:n])); m != n || err != nil {
					t.Fatalf("wrote %d of %d: %v", m, n, err)
				}
				if len(s.line) > maxStatus {
					t.Fatalf("keeps %d bytes", len(s.line))
				}
				rest = rest[n:]
			}
			return got
		}
		whole := read(len(text) + 1)
		if pieces := read(int(piece) + 1); fmt.Sprint(pieces) != fmt.Sprint(whole) {
			t.Errorf("in pieces %v, whole %v", pieces, whole)
		}
		lines := strings.Split(text, "\n")
		for _, got := range whole {
			found := false
			for i, line := range lines {
				var seq uint64
				var code int
				n, _ := fmt.Sscanf(line, "%d %d", &seq, &code)
				if n == 2 && fmt.Sprint(seq, " ", code) == got {
					lines, found = lines[i+1:], true
					break
				}
			}
			if !found {
				t.Errorf("%q comes from nowhere", got)
			}
		}
	})
}

func TestStatusIsFoundAmongGarbage(t *testing.T) {
	var got []string
	s := &statusReader{report: func(seq uint64, code int) { got = append(got, fmt.Sprint(seq, ":", code)) }}
	_, _ = s.Write([]byte("1 0\nx\n\n2 256\n3 1 1\n" + strings.Repeat("4", 1000)))
	_, _ = s.Write([]byte(" 1\n5 1"))
	_, _ = s.Write([]byte("2\n"))
	if want := "[1:0 5:12]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %s", got, want)
	}
}
