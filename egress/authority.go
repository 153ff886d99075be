package egress

import (
	"container/list"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"sync"
	"time"

	"github.com/dormouse-run/dormouse/vault"
)

const (
	authorityLife = 10 * 365 * 24 * time.Hour
	// leafLife is from the first second to the last, backdating included.
	leafLife = 24 * time.Hour
	// backdate is how far the clock of a sandbox may be behind ours.
	backdate = 10 * time.Minute
	// renewBefore is how much of its life a leaf still has when another is made.
	renewBefore = 6 * time.Hour
	// maxLeaves bounds the leaves that are kept, whatever names are asked for.
	maxLeaves = 1024

	serialBits = 127

	pemCertificate = "CERTIFICATE"
	pemKey         = "PRIVATE KEY"
)

// Authority is the certificate authority that sandboxes trust. It signs certificates,
// leaves, by which the proxy can stand in for a host that a grant covers.
type Authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	now         func() time.Time

	mu     sync.Mutex
	leaves map[string]*list.Element // guarded by mu; of *leaf, by host
	recent list.List                // guarded by mu; the latest used in front
}

// leaf is a certificate for one host.
type leaf struct {
	host string
	cert *tls.Certificate
}

// NewAuthority makes an authority with a key of its own.
func NewAuthority() (*Authority, error) {
	a, err := newAuthority()
	if err != nil {
		return nil, fmt.Errorf("make a certificate authority: %w", err)
	}
	return a, nil
}

func newAuthority() (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: "Dormouse egress", Organization: []string{"Dormouse"}},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(authorityLife),
		KeyUsage:              x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true, // no authority below this one
		// Which hosts there will be is not known now, but none is the sandbox itself.
		PermittedDNSDomainsCritical: true,
		ExcludedDNSDomains:          []string{"localhost"},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return openAuthority(certificate, key), nil
}

// ParseAuthority reads what PEM gave.
func ParseAuthority(certificate []byte, key vault.Secret) (*Authority, error) {
	a, err := parseAuthority(certificate, []byte(key.Reveal()))
	if err != nil {
		return nil, fmt.Errorf("read the certificate authority: %w", err)
	}
	return a, nil
}

func parseAuthority(certificate, key []byte) (*Authority, error) {
	block, _ := pem.Decode(certificate)
	if block == nil || block.Type != pemCertificate {
		return nil, errors.New("there is no certificate")
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, err
	}
	if block, _ = pem.Decode(key); block == nil || block.Type != pemKey {
		return nil, errors.New("there is no key")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, errors.New("the key cannot be read") // the error could quote it
	}
	k, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || !k.PublicKey.Equal(c.PublicKey) {
		return nil, errors.New("the key is not that of the certificate")
	}
	if !c.IsCA {
		return nil, errors.New("the certificate is not one of an authority")
	}
	return openAuthority(c, k), nil
}

func openAuthority(certificate *x509.Certificate, key *ecdsa.PrivateKey) *Authority {
	return &Authority{certificate: certificate, key: key, now: time.Now, leaves: make(map[string]*list.Element)}
}

// Certificate returns the certificate that sandboxes are to trust, in PEM.
func (a *Authority) Certificate() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: pemCertificate, Bytes: a.certificate.Raw})
}

// PEM returns the certificate and the key. The key is for whoever seals it, and goes
// nowhere else.
func (a *Authority) PEM() (certificate []byte, key vault.Secret, err error) {
	der, err := x509.MarshalPKCS8PrivateKey(a.key)
	if err != nil {
		return nil, vault.Secret{}, fmt.Errorf("write the certificate authority: %w", err)
	}
	return a.Certificate(), vault.NewSecret(string(pem.EncodeToMemory(&pem.Block{Type: pemKey, Bytes: der}))), nil
}

// Format implements fmt.Formatter, so that no verb shows the key.
func (a *Authority) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("[authority]")) }

// LogValue implements slog.LogValuer.
func (a *Authority) LogValue() slog.Value { return slog.StringValue("[authority]") }

// leaf returns a certificate for one host and nothing else: one that was made before, if
// it is still good for a while.
func (a *Authority) leaf(t target) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	if e, ok := a.leaves[t.host]; ok {
		if l, ok := e.Value.(*leaf); ok && now.Add(renewBefore).Before(l.cert.Leaf.NotAfter) && now.After(l.cert.Leaf.NotBefore) {
			a.recent.MoveToFront(e)
			return l.cert, nil
		}
		a.drop(e)
	}
	cert, err := a.mint(t, now)
	if err != nil {
		return nil, fmt.Errorf("make a certificate for %s: %w", t.host, err)
	}
	a.leaves[t.host] = a.recent.PushFront(&leaf{t.host, cert})
	if a.recent.Len() > maxLeaves {
		a.drop(a.recent.Back())
	}
	return cert, nil
}

// drop forgets a leaf. The lock is held.
func (a *Authority) drop(e *list.Element) {
	if l, ok := a.recent.Remove(e).(*leaf); ok {
		delete(a.leaves, l.host)
	}
}

func (a *Authority) mint(t target, now time.Time) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	start := now.Add(-backdate)
	end := start.Add(leafLife)
	if a.certificate.NotAfter.Before(end) {
		end = a.certificate.NotAfter
	}
	template := &x509.Certificate{
		SerialNumber:          serial,
		NotBefore:             start,
		NotAfter:              end,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	if t.addr.IsValid() {
		template.IPAddresses = append(template.IPAddresses, t.addr.AsSlice())
	} else {
		template.DNSNames = []string{t.host}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		return nil, err
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der, a.certificate.Raw}, PrivateKey: key, Leaf: parsed}, nil
}

func newSerial() (*big.Int, error) {
	return rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), serialBits))
}
