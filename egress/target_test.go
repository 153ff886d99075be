package egress_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/egress"
)

func TestTargetHasOneForm(t *testing.T) {
	for in, want := range map[string]string{
		"example.com:443":      "example.com:443",
		"EXAMPLE.com:443":      "example.com:443", // E04
		"example.com.:443":     "example.com:443", // E04
		"example.com":          "example.com:80",
		"xn--bcher-kva.de:1":   "xn--bcher-kva.de:1",
		"a_b.example.com:8080": "a_b.example.com:8080",
		"93.184.216.34:443":    "93.184.216.34:443",
		"[2606:4700::1]:443":   "[2606:4700::1]:443",
		"[2606:4700:0:0::1]":   "[2606:4700::1]:80",
		"1.example.com:80":     "1.example.com:80",
		"0xfg:80":              "0xfg:80",
	} {
		got, err := egress.ParseTarget(in, 80)
		if got != want || err != nil {
			t.Errorf("%q: %q, %v; want %q", in, got, err, want)
		}
	}
}

func TestTargetThatCouldBeReadOtherwiseIsRefused(t *testing.T) {
	for _, in := range []string{
		"", ":443", ".:443", "example..com:443", ".example.com:443", "example.com..:443", // E04
		"evil.com\x00.example.com:443",                                                             // E05
		"bücher.de:443", "exаmple.com:443", "ｅxample.com:443", "example。com:443", "\u212Aelvin:80", // E07
		"example.com@evil.com:443", "example.com#@evil.com:443", "u:p@evil.com:443", // E08
		"example.com:", "example.com:0", "example.com:65536", "example.com:+80", "example.com:080", "example.com:http", "example.com:80:80", // E10
		"2130706433:80", "0x7f000001:80", "017700000001:80", "127.1:80", "127.0.1:80", "0177.0.0.1:80", "0x7f.0.0.1:80", "127.0.0.01:80", "127.0.0.1.:0", "1.2.3.4.5:80", "256.1.1.1:80", "0x:80", "127.0.0.0x1:80", "example.1:80", // E13
		"::1:80", "[::1%eth0]:80", "[fe80::1%25lo]:80", "[127.0.0.1]:80", "[::1:80", "[::1]80", "[]:80", "[[::1]]:80",
		"example.com/path:443", "example.com:443/", "exa mple.com:443", "example.com\r\nx:443", "*:443", "%65xample.com:443",
		strings.Repeat("a", 64) + ".com:443", strings.Repeat("a.", 200) + "com:443",
	} {
		if got, err := egress.ParseTarget(in, 80); !errors.Is(err, dormouse.ErrInvalid) {
			t.Errorf("%q was taken for %q (%v)", in, got, err)
		}
	}
	if got, err := egress.ParseTarget("example.com", 0); err == nil {
		t.Errorf("a port was made up: %q", got)
	}
}

func FuzzTarget(f *testing.F) {
	for _, seed := range []string{"example.com:443", "EXAMPLE.com.:1", "1.2.3.4:80", "[::1]:80", "0x7f.1:80", "[fe80::1%a]:1", "a..b:2", "x@y:3"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		got, err := egress.ParseTarget(in, 80)
		if err != nil {
			if !errors.Is(err, dormouse.ErrInvalid) {
				t.Fatalf("%q: %v", in, err)
			}
			return
		}
		if again, err := egress.ParseTarget(got, 0); again != got || err != nil {
			t.Fatalf("%q is %q is %q (%v)", in, got, again, err)
		}
		host, port, err := net.SplitHostPort(got)
		if err != nil {
			t.Fatalf("%q: %v", in, err)
		}
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			t.Fatalf("%q has port %q", in, port)
		}
		a, err := netip.ParseAddr(host)
		if err == nil {
			if a.Zone() != "" || a.String() != host {
				t.Fatalf("%q is the address %q", in, host)
			}
			return
		}
		last := host[strings.LastIndexByte(host, '.')+1:]
		if _, err := strconv.ParseUint(last, 0, 64); err == nil && !strings.HasPrefix(last, "0b") && !strings.HasPrefix(last, "0o") && !strings.Contains(last, "_") {
			t.Fatalf("%q is the name %q, which ends in a number", in, host)
		}
		if strings.Trim(host, "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "" {
			t.Fatalf("%q is the name %q", in, host)
		}
	})
}

// forms is an IPv4 address in all notations that some parser accepts.
func forms(b [4]byte) []string {
	n := uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
	quad := netip.AddrFrom4(b).String()
	hex := fmt.Sprintf("%02x%02x:%02x%02x", b[0], b[1], b[2], b[3])
	inverse := fmt.Sprintf("%02x%02x:%02x%02x", ^b[0], ^b[1], ^b[2], ^b[3])
	return []string{
		quad, quad + ".", strconv.FormatUint(uint64(n), 10), fmt.Sprintf("0x%x", n), fmt.Sprintf("0X%X", n), fmt.Sprintf("0%o", n),
		fmt.Sprintf("0%o.%d.%d.%d", b[0], b[1], b[2], b[3]), fmt.Sprintf("0x%x.0x%x.0x%x.0x%x", b[0], b[1], b[2], b[3]),
		fmt.Sprintf("%d.%d", b[0], n&0xffffff), fmt.Sprintf("%d.%d.%d", b[0], b[1], n&0xffff), fmt.Sprintf("%03d.%03d.%03d.%03d", b[0], b[1], b[2], b[3]),
		"[::ffff:" + quad + "]", "[::ffff:" + hex + "]", "[::" + quad + "]", "[::" + hex + "]", "[64:ff9b::" + quad + "]", "[64:ff9b:1::" + quad + "]",
		"[2002:" + hex + "::1]", "[2001:0:4136:e378:8000:63bf:" + inverse + "]", "[2606:4700::5efe:" + quad + "]", "[2606:4700::200:5efe:" + hex + "]", "[" + quad + "]",
	}
}

func FuzzIPGuard(f *testing.F) {
	for _, a := range []string{"127.0.0.1", "10.0.0.1", "169.254.169.254", "100.64.0.1", "192.168.1.1", "172.31.255.255", "0.0.0.0", "224.0.0.1", "255.255.255.255", "168.63.129.16"} {
		b := netip.MustParseAddr(a).As4()
		f.Add(b[0], b[1], b[2], b[3])
	}
	p := egress.New(egress.Options{})
	f.Fuzz(func(t *testing.T, a, b, c, d byte) {
		addr := netip.AddrFrom4([4]byte{a, b, c, d})
		if p.Check("example.com:443", addr) == nil {
			return
		}
		for _, form := range forms(addr.As4()) {
			to, err := egress.ParseTarget(form, 443)
			if err != nil {
				continue
			}
			host, _, err := net.SplitHostPort(to)
			if err != nil {
				t.Fatal(err)
			}
			dialled, err := netip.ParseAddr(host)
			if err != nil {
				t.Fatalf("%s as %s is taken for the name %s", addr, form, host)
			}
			if p.Check(to, dialled) == nil {
				t.Fatalf("%s is reached as %s", addr, form)
			}
		}
	})
}
