package dormouse_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/dormouse-run/dormouse"
)

func TestAHostIsTheNameThatWasGivenAndNoOther(t *testing.T) {
	for _, c := range []struct {
		entry, host string
		port        uint16
		want        bool
	}{
		{"example.com", "example.com", 443, true},
		{"example.com", "example.com", 80, true},
		{"example.com", "example.com", 22, false}, // E10
		{"example.com:22", "example.com", 22, true},
		{"example.com:22", "example.com", 443, false},
		{"https://example.com", "example.com", 443, true},
		{"https://example.com/", "example.com", 80, false},
		{"http://example.com", "example.com", 80, true},
		{"https://example.com:8443", "example.com", 8443, true},
		{"EXAMPLE.com.", "example.com", 443, true},          // E04
		{"example.com", "example.com.evil.org", 443, false}, // E02
		{"example.com", "notexample.com", 443, false},       // E02
		{"example.com", "www.example.com", 443, false},
		{"*.example.com", "www.example.com", 443, true},
		{"*.example.com", "a.b.example.com", 443, true},
		{"*.example.com", "example.com", 443, false},
		{"*.example.com", "notexample.com", 443, false},
		{"*.example.com", "www.example.com.evil.org", 443, false}, // E02
		{"*.example.com:8443", "www.example.com", 8443, true},
		{"xn--bcher-kva.example", "xn--bcher-kva.example", 443, true}, // E07
		{"192.0.2.1", "192.0.2.1", 443, true},
		{"192.0.2.1", "192.0.2.10", 443, false},
		{"[2001:DB8:0::1]", "2001:db8::1", 443, true},
		{"[2001:db8::1]:8080", "2001:db8::1", 8080, true},
	} {
		h, err := dormouse.ParseHost(c.entry)
		if err != nil {
			t.Errorf("%q: %v", c.entry, err)
		}
		if got := h.Covers(c.host, c.port); got != c.want {
			t.Errorf("%q covers %s:%d: %v", c.entry, c.host, c.port, got)
		}
	}
}

func TestAHostThatCouldBeReadOtherwiseIsRefused(t *testing.T) {
	for _, entry := range []string{
		"", "*", "*.", "*.com", "*example.com", "a.*.com", "www.*", "**.example.com", "*.*.example.com", "*.192.0.2.1", ".example.com", "example..com",
		"evil.com\x00.example.com", "bücher.example", "exаmple.com", "example。com", // E05, E07
		"user@example.com", "https://example.com/path", "https://https://example.com", "ftp://example.com", "example.com?x", "example.com#", // E08, E11
		"example.com:", "example.com:0", "example.com:65536", "example.com:*", "127.1", "0x7f.1", "2130706433", "2001:db8::1", "[fe80::1%eth0]", "10.0.0.0/8", // E13
		"example.com ", " example.com", "example.com\n", "a,b", strings.Repeat("a.", 200) + "com",
	} {
		if _, err := dormouse.ParseHost(entry); !errors.Is(err, dormouse.ErrInvalid) {
			t.Errorf("%q: %v", entry, err)
		}
	}
}

// FuzzHost holds hosts to what they promise: what is covered is the name itself, or
// ends with it behind a dot, and never an address that was not named.
func FuzzHost(f *testing.F) {
	for _, seed := range [][2]string{{"example.com", "example.com"}, {"*.example.com", "a.example.com"}, {"192.0.2.1", "192.0.2.1"}, {"[::1]:80", "::1"}, {"https://a.b/", "a.b"}} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, entry, host string) {
		h, err := dormouse.ParseHost(entry)
		if err != nil {
			return
		}
		covered := false
		for _, port := range []uint16{80, 443, 22, 8443} {
			covered = covered || h.Covers(host, port)
		}
		if !covered {
			return
		}
		name := strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(strings.ToLower(entry), "https://"), "http://"), "/")
		if _, err := netip.ParseAddr(host); err == nil {
			return // brackets and short forms are rewritten
		}
		if below, ok := strings.CutPrefix(name, "*"); ok {
			stem, _, _ := strings.Cut(below, ":")
			if !strings.HasSuffix(host, strings.TrimSuffix(stem, ".")) || host == stem[1:] {
				t.Errorf("%q covers %q", entry, host)
			}
			return
		}
		if stem, _, _ := strings.Cut(name, ":"); host != strings.TrimSuffix(stem, ".") {
			t.Errorf("%q covers %q", entry, host)
		}
	})
}
