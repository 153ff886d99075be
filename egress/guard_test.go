package egress_test

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/egress"
)

func TestOnlyPublicAddressesAreDialled(t *testing.T) {
	p := egress.New(egress.Options{})
	p.SetInterfaces(func() ([]net.Addr, error) { return nil, nil })
	for addr, want := range map[string]string{
		"1.1.1.1": "", "93.184.216.34": "", "2606:4700:4700::1111": "", "2a00:1450:4001::1": "", "100.63.255.255": "", "172.32.0.1": "", "198.20.0.1": "", "2001:200::1": "",
		"0.0.0.0": "unspecified", "0.1.2.3": "this network", "::": "unspecified", // E14
		"127.0.0.1": "loopback", "127.255.0.9": "loopback", "::1": "loopback",
		"10.0.0.1": "private", "172.16.0.1": "private", "172.31.255.255": "private", "192.168.0.1": "private", "fc00::1": "private", "fd00:ec2::254": "private", // E23
		"169.254.169.254": "link-local", "169.254.170.2": "link-local", "fe80::1": "link-local", // E23
		"100.64.0.1": "shared", "100.100.100.200": "shared", "100.127.255.255": "shared", // E23
		"168.63.129.16": "metadata", "192.0.0.192": "protocol", // E23
		"::ffff:127.0.0.1": "mapped", "::ffff:8.8.8.8": "mapped", // E16
		"::127.0.0.1": "compatible", "::8.8.8.8": "compatible", // E17
		"64:ff9b::a00:1": "NAT64", "64:ff9b:1::a00:1": "NAT64",
		"2002:7f00:1::1": "6to4", "192.88.99.1": "6to4", // E19
		"2001::1": "Teredo", "2001:0:4136:e378:8000:63bf:3fff:fdd2": "Teredo", // E20
		"2001:2::1": "protocol", "2001:20::1": "protocol",
		"2606:4700::5efe:a00:1": "ISATAP", "2606:4700::200:5efe:a00:1": "ISATAP",
		"224.0.0.1": "multicast", "239.255.255.250": "multicast", "ff02::1": "multicast", "255.255.255.255": "broadcast", "240.0.0.1": "reserved", // E22
		"192.0.0.1": "protocol", "198.18.0.1": "benchmark", "198.19.255.255": "benchmark", // E22
		"192.0.2.1": "documentation", "198.51.100.1": "documentation", "203.0.113.1": "documentation", "2001:db8::1": "documentation", "3fff::1": "documentation",
		"fec0::1": "site-local", "100::1": "not a public", "4000::1": "not a public", "5f00::1": "not a public",
		"2606:4700::1%eth0": "zone",
	} {
		err := p.Check("example.com:443", netip.MustParseAddr(addr))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", addr, err, want)
		}
	}
}

func TestTheDialerAsksAboutWhatItDials(t *testing.T) {
	p := egress.New(egress.Options{})
	if err := p.Control("example.com:443", "1.1.1.1:443"); err != nil {
		t.Error(err)
	}
	for _, address := range []string{"127.0.0.1:443", "[::1]:443", "10.0.0.1:443", "[fe80::1%lo]:443", "1.1.1.1:80", "example.com:443", ""} {
		if p.Control("example.com:443", address) == nil {
			t.Errorf("%q would be dialled", address)
		}
	}
}

func TestAllowedIsWhatIsListedAndNoMore(t *testing.T) {
	const machine, listener = "10.0.0.5", "10.0.0.5:7717"
	for _, c := range []struct {
		allow, to, addr string
		want            bool
	}{
		{"", "db.internal:5432", "10.1.0.1", false},
		{"10.1.0.0/16", "db.internal:5432", "10.1.0.1", true},
		{"10.1.0.0/16", "db.internal:5432", "10.2.0.1", false},
		{"10.1.0.1", "db.internal:5432", "10.1.0.1", true},
		{"10.1.0.1:5432", "db.internal:5432", "10.1.0.1", true},
		{"10.1.0.1:5432", "db.internal:5433", "10.1.0.1", false},
		{"DB.internal.:5432", "db.internal:5432", "10.1.0.1", true},
		{"db.internal:5432", "db.internal:22", "10.1.0.1", false},
		{"db.internal:5432", "db.internal.evil.com:5432", "10.1.0.1", false}, // E02
		{"fd00::/8", "db.internal:5432", "fd00::1", true},
		{"[fd00::1]:5432", "db.internal:5432", "fd00::1", true},
		{"169.254.169.254", "metadata.google.internal:80", "169.254.169.254", true},
		{"127.0.0.0/8", "localhost:80", "127.0.0.1", true},
		{"0.0.0.0/0", "localhost:80", "0.0.0.0", false},
		{"::/0", "localhost:80", "::ffff:127.0.0.1", false},

		{"", "example.com:25", "1.1.1.1", false},
		{"1.1.1.1", "example.com:25", "1.1.1.1", false},
		{"example.com:25", "example.com:25", "1.1.1.1", true},
		{"1.1.1.1:25", "example.com:25", "1.1.1.1", true},

		{"10.0.0.0/8", "db.internal:5432", machine, false},
		{machine, "db.internal:5432", machine, true},
		{"db.internal:5432", "db.internal:5432", machine, true},
		{"", "example.com:443", "198.20.0.9", false}, // the machine's public address
		{"198.20.0.9", "example.com:443", "198.20.0.9", true},

		{machine, "db.internal:7717", machine, false},
		{"db.internal:7717", "db.internal:7717", machine, false}, // E28
		{listener, "db.internal:7717", machine, true},
		{"127.0.0.1", "localhost:9090", "127.0.0.1", false}, // listens everywhere
		{"198.20.0.9", "example.com:9090", "198.20.0.9", false},
		{"", "example.com:9090", "1.1.1.1", true},
	} {
		var entries []string
		if c.allow != "" {
			entries = append(entries, c.allow)
		}
		allow, err := egress.ParseAllow(entries)
		if err != nil {
			t.Fatal(err)
		}
		p := egress.New(egress.Options{Allow: allow, Listeners: []netip.AddrPort{netip.MustParseAddrPort(listener), netip.MustParseAddrPort("[::]:9090")}})
		p.SetInterfaces(func() ([]net.Addr, error) {
			return []net.Addr{
				&net.IPNet{IP: net.ParseIP(machine), Mask: net.CIDRMask(24, 32)},
				&net.IPNet{IP: net.ParseIP("198.20.0.9"), Mask: net.CIDRMask(24, 32)},
			}, nil
		})
		if err := p.Check(c.to, netip.MustParseAddr(c.addr)); (err == nil) != c.want {
			t.Errorf("with %q, %s at %s: %v", c.allow, c.to, c.addr, err)
		}
	}
}

func TestTheNameOfTheServerIsTheServer(t *testing.T) {
	allow, err := egress.ParseAllow([]string{"dormouse.example:7717", "10.0.0.0/8", "93.184.216.9:7717"})
	if err != nil {
		t.Fatal(err)
	}
	p := egress.New(egress.Options{Allow: allow, Names: []string{"Dormouse.Example.:7717", "no name at all"}})
	for to, want := range map[string]bool{"dormouse.example:7717": false, "DORMOUSE.example:7717": false, "dormouse.example:80": true, "other.example:7717": true} {
		for _, addr := range []string{"93.184.216.34", "10.1.2.3"} {
			if err := p.Check(to, netip.MustParseAddr(addr)); (err == nil) != want {
				t.Errorf("%s at %s: %v", to, addr, err)
			}
		}
	}
	if err := p.Check("dormouse.example:7717", netip.MustParseAddr("93.184.216.9")); err != nil {
		t.Errorf("allowed by address and port: %v", err)
	}
}

func TestAllowRefusesWhatItCannotMean(t *testing.T) {
	for _, entry := range []string{"", "example.com", "10.0.0.0/33", "::ffff:10.0.0.1", "::ffff:10.0.0.0/104", "[::ffff:10.0.0.1]:80", "fe80::1%eth0", "10.0.0.1:0", "*.example.com:443", "127.1:80", "0.0.0.0:80"} {
		if _, err := egress.ParseAllow([]string{entry}); !errors.Is(err, dormouse.ErrInvalid) {
			t.Errorf("%q: %v", entry, err)
		}
	}
}

func TestNothingIsDialledWhenTheMachineIsUnknown(t *testing.T) {
	p := egress.New(egress.Options{})
	p.SetInterfaces(func() ([]net.Addr, error) { return nil, errors.New("no netlink") })
	if p.Check("example.com:443", netip.MustParseAddr("1.1.1.1")) == nil {
		t.Error("an address was allowed without knowing whose it is")
	}
}

func TestTheMachinesAddressesAreReadAgainAfterAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := egress.New(egress.Options{})
		var mine []net.Addr
		reads := 0
		p.SetInterfaces(func() ([]net.Addr, error) {
			reads++
			return mine, nil
		})
		check := func() error { return p.Check("example.com:443", netip.MustParseAddr("198.20.0.9")) }
		for range 3 {
			if err := check(); err != nil || reads != 1 {
				t.Errorf("%v after %d reads", err, reads)
			}
		}
		mine = []net.Addr{&net.IPNet{IP: net.ParseIP("198.20.0.9"), Mask: net.CIDRMask(24, 32)}}
		time.Sleep(5 * time.Second)
		if check() == nil {
			t.Error("an address that is ours by now was allowed")
		}
	})
}
