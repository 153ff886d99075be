package door

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// HostPolicy refuses requests that a web page in the browser of a user may have
// sent: those for a host name that is not ours (DNS rebinding), and those from other
// origins. The token protects the server anyway; this keeps such pages from trying.
type HostPolicy struct {
	hosts map[string]bool
	anyIP bool // listening everywhere: any address may be ours
}

// NewHostPolicy returns the policy of a server that has these host names, besides
// those of loopback.
func NewHostPolicy(names []string) *HostPolicy {
	g := &HostPolicy{hosts: map[string]bool{"localhost": true}}
	for _, name := range names {
		if ip, err := netip.ParseAddr(strings.Trim(name, "[]")); name == "" || err == nil && ip.IsUnspecified() {
			g.anyIP = true
			continue
		}
		g.hosts[canonicalHost(name)] = true
	}
	return g
}

// Check refuses a request that a page of another origin may have sent.
func (g *HostPolicy) Check(r *http.Request) error {
	if !g.names(r.Host) {
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

// names reports whether a Host header names this server. The owner of a name can
// point it at any server; an address cannot be redirected like that.
func (g *HostPolicy) names(host string) bool {
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

// Shorten truncates text of a client that an answer repeats.
func Shorten(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
