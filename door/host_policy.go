package door

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// Guard turns away what a page in somebody's browser may have sent: requests
// under a name that was merely pointed here, and requests from other origins.
// The token protects us anyway; this keeps such pages from even trying.
type Guard struct {
	hosts map[string]bool
	anyIP bool // listening everywhere: any address may be ours
}

// NewGuard returns the guard of a server that may be called by these names,
// besides those of loopback.
func NewGuard(names []string) *Guard {
	g := &Guard{hosts: map[string]bool{"localhost": true}}
	for _, name := range names {
		if ip, err := netip.ParseAddr(strings.Trim(name, "[]")); name == "" || err == nil && ip.IsUnspecified() {
			g.anyIP = true
			continue
		}
		g.hosts[canonicalHost(name)] = true
	}
	return g
}

// Check refuses a request that a foreign page may have sent.
func (g *Guard) Check(r *http.Request) error {
	if !g.ours(r.Host) {
		return &Refusal{Status: http.StatusForbidden, Type: "forbidden", Message: "this server is not called " + quoteHost(r.Host) + "; name it with --host if it should be"}
	}
	foreign := &Refusal{Status: http.StatusForbidden, Type: "forbidden", Message: "requests from other origins are refused"}
	if site := r.Header.Get("Sec-Fetch-Site"); site == "cross-site" || site == "same-site" {
		return foreign
	}
	if origins := r.Header.Values("Origin"); len(origins) > 0 {
		u, err := url.Parse(origins[0])
		if err != nil || len(origins) > 1 || u.Host == "" || !strings.EqualFold(u.Host, r.Host) {
			return foreign
		}
	}
	return nil
}

// ours reports whether a Host header names this server. An address cannot be
// pointed elsewhere by its owner, a name can.
func (g *Guard) ours(host string) bool {
	name := canonicalHost(host)
	if ip, err := netip.ParseAddr(name); err == nil {
		return g.anyIP || ip.Unmap().IsLoopback() || g.hosts[name]
	}
	return g.hosts[name]
}

func canonicalHost(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.Trim(host, "[]"))
}

func quoteHost(host string) string { return "“" + Shorten(strings.ToValidUTF8(host, "")) + "”" }

// Shorten keeps a client's own words from filling the answer.
func Shorten(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
