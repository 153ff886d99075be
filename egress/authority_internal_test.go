package egress

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse/vault"
)

func newTestAuthority(t testing.TB) *Authority {
	t.Helper()
	a, err := NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestALeafIsForOneHostAndADayAtMost(t *testing.T) {
	a := newTestAuthority(t)
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(a.Certificate()) {
		t.Fatal("the certificate is not PEM")
	}
	for _, c := range []struct {
		to     string
		passes string
		fails  []string
	}{
		{"api.example:443", "api.example", []string{"example", "x.api.example", "api.example.evil"}},
		{"192.0.2.1:443", "192.0.2.1", []string{"192.0.2.2", "api.example"}},
		{"[2001:db8::1]:8443", "2001:db8::1", []string{"2001:db8::2"}},
	} {
		to, err := parseTarget(c.to, 0)
		if err != nil {
			t.Fatal(err)
		}
		cert, err := a.leaf(to)
		if err != nil {
			t.Fatal(err)
		}
		if life := cert.Leaf.NotAfter.Sub(cert.Leaf.NotBefore); life > 24*time.Hour {
			t.Errorf("%s: lives %v", c.to, life)
		}
		if late := time.Since(cert.Leaf.NotBefore); late < 5*time.Minute {
			t.Errorf("%s: a clock that is late by more than %v does not trust it", c.to, late)
		}
		if cert.Leaf.IsCA || len(cert.Leaf.DNSNames)+len(cert.Leaf.IPAddresses) != 1 {
			t.Errorf("%s: %v %v", c.to, cert.Leaf.DNSNames, cert.Leaf.IPAddresses)
		}
		if _, err := cert.Leaf.Verify(x509.VerifyOptions{DNSName: c.passes, Roots: roots}); err != nil {
			t.Errorf("%s: %v", c.to, err)
		}
		for _, name := range c.fails {
			if _, err := cert.Leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: roots}); err == nil {
				t.Errorf("%s: is good for %s", c.to, name)
			}
		}
	}
}

func TestTheAuthorityIsGoodForNothingBelowItAndNotForTheSandboxItself(t *testing.T) {
	a := newTestAuthority(t)
	roots := x509.NewCertPool()
	roots.AddCert(a.certificate)
	if c := a.certificate; !c.MaxPathLenZero || c.MaxPathLen != 0 || c.KeyUsage != x509.KeyUsageCertSign {
		t.Errorf("%d %v", c.MaxPathLen, c.KeyUsage)
	}
	for _, host := range []string{"localhost", "a.localhost"} {
		cert, err := a.leaf(target{host: host, port: 443})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := cert.Leaf.Verify(x509.VerifyOptions{DNSName: host, Roots: roots}); err == nil {
			t.Errorf("%s is trusted", host)
		}
	}
	cert, err := a.leaf(target{host: "api.example", port: 443})
	if err != nil {
		t.Fatal(err)
	}
	client := x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	if _, err := cert.Leaf.Verify(client); err == nil {
		t.Error("a leaf is good for clients")
	}
}

func TestAnAuthorityIsTheSameAfterItWasWrittenAndRead(t *testing.T) {
	a := newTestAuthority(t)
	certificate, key, err := a.PEM()
	if err != nil {
		t.Fatal(err)
	}
	b, err := ParseAuthority(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := b.leaf(target{host: "api.example", port: 443})
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(a.certificate)
	if _, err := cert.Leaf.Verify(x509.VerifyOptions{DNSName: "api.example", Roots: roots}); err != nil {
		t.Error(err)
	}

	other, otherKey, err := newTestAuthority(t).PEM()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		certificate []byte
		key         vault.Secret
	}{
		"another's key":         {certificate, otherKey},
		"another's certificate": {other, key},
		"no key":                {certificate, vault.Secret{}},
		"no certificate":        {nil, key},
		"a key as certificate":  {[]byte(key.Reveal()), key},
		"garbage":               {certificate, vault.NewSecret("garbage")},
	} {
		if _, err := ParseAuthority(c.certificate, c.key); err == nil {
			t.Errorf("%s is an authority", name)
		}
	}
}

func TestTheKeyOfAnAuthorityIsNotPrinted(t *testing.T) {
	a := newTestAuthority(t)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%q"} {
		holder := struct{ Authority *Authority }{a}
		for _, text := range []string{fmt.Sprintf(verb, a), fmt.Sprintf(verb, holder)} {
			if strings.Contains(text, a.key.D.String()) || strings.Contains(text, fmt.Sprintf("%x", a.key.D)) { //nolint:staticcheck // it is what must not be seen
				t.Errorf("%s shows the key", verb)
			}
		}
	}
}

func TestLeavesAreKeptAndMadeAnewBeforeTheyEnd(t *testing.T) {
	a := newTestAuthority(t)
	now := time.Now()
	a.now = func() time.Time { return now }
	to := target{host: "api.example", port: 443}
	get := func() *tls.Certificate {
		cert, err := a.leaf(to)
		if err != nil {
			t.Fatal(err)
		}
		return cert
	}
	first := get()
	now = now.Add(17 * time.Hour)
	if get() != first {
		t.Error("a leaf was made anew though it was good for hours")
	}
	now = now.Add(2 * time.Hour)
	second := get()
	if second == first {
		t.Error("a leaf was given out shortly before its end")
	}
	now = now.Add(-48 * time.Hour)
	if get() == second {
		t.Error("a leaf was given out that is not valid yet")
	}
}

func TestManyNamesDoNotFillTheMemory(t *testing.T) { // E76
	a := newTestAuthority(t)
	// Each name beyond the limit evicts another, so that more of them show no more.
	const names = 2 * maxLeaves
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range names {
		if _, err := a.leaf(target{host: fmt.Sprintf("n%d.example", i), port: 443}); err != nil {
			t.Fatal(err)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if len(a.leaves) != maxLeaves || a.recent.Len() != maxLeaves {
		t.Errorf("%d and %d leaves are kept", len(a.leaves), a.recent.Len())
	}
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 32<<20 {
		t.Errorf("%d leaves take %d bytes", maxLeaves, grown)
	}
	if _, ok := a.leaves[fmt.Sprintf("n%d.example", names-1)]; !ok {
		t.Error("the latest leaf is not kept")
	}
}

func TestALeafWorksWithTLS(t *testing.T) {
	a := newTestAuthority(t)
	cert, err := a.leaf(target{host: "api.example", port: 443})
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(a.certificate)
	near, far := net.Pipe()
	server := tls.Server(far, &tls.Config{Certificates: []tls.Certificate{*cert}, MinVersion: tls.VersionTLS12, SessionTicketsDisabled: true})
	ended := make(chan error, 1)
	go func() { ended <- server.HandshakeContext(t.Context()) }()
	client := tls.Client(near, &tls.Config{RootCAs: roots, ServerName: "api.example", MinVersion: tls.VersionTLS12})
	if err := client.HandshakeContext(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
