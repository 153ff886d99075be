//go:build darwin

package inside

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestUsageIsReadFromPS(t *testing.T) {
	got := parsePS([]byte("    1  12345   1:02.50\n  301   2048 123:00.01\nnonsense\n 7 8 9\n"))
	want := map[int]stat{
		1:   {cpu: 62*time.Second + 500*time.Millisecond, rss: 12345 << 10},
		301: {cpu: 123*time.Minute + 10*time.Millisecond, rss: 2048 << 10},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(stat{})); diff != "" {
		t.Error(diff)
	}
}

func TestPortsAreReadFromLsof(t *testing.T) {
	got := parseLsof([]byte("p12\nf3\nn127.0.0.1:8080\nf4\nn*:80\np13\nf5\nn[::1]:9000\nnnonsense\n"))
	want := []socket{
		{at: netip.MustParseAddrPort("127.0.0.1:8080"), pid: 12},
		{at: netip.MustParseAddrPort("0.0.0.0:80"), pid: 12},
		{at: netip.MustParseAddrPort("[::1]:9000"), pid: 13},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(socket{}), cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
}
