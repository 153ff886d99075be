package rest

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/dormouse-run/dormouse/door"
)

func (s *Server) allowHosts(names []string) {
	s.hosts = map[string]bool{"localhost": true}
	for _, name := range names {
		if ip, err := netip.ParseAddr(strings.Trim(name, "[]")); name == "" || err == nil && ip.IsUnspecified() {
			s.anyIP = true
			continue
		}
		s.hosts[canonicalHost(name)] = true
	}
}

// guard turns away what a page in somebody's browser may have sent: requests
// under a name that was merely pointed here, and requests from other origins.
// The token protects us anyway; this keeps such pages from even trying.
func (s *Server) guard(r *http.Request) error {
	if !s.ours(r.Host) {
		return &door.Refusal{Status: http.StatusForbidden, Type: "forbidden", Message: "this server is not called " + quoteHost(r.Host) + "; name it with --host if it should be"}
	}
	foreign := &door.Refusal{Status: http.StatusForbidden, Type: "forbidden", Message: "requests from other origins are refused"}
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
func (s *Server) ours(host string) bool {
	name := canonicalHost(host)
	if ip, err := netip.ParseAddr(name); err == nil {
		return s.anyIP || ip.Unmap().IsLoopback() || s.hosts[name]
	}
	return s.hosts[name]
}

func canonicalHost(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.Trim(host, "[]"))
}

func quoteHost(host string) string { return "“" + shorten(strings.ToValidUTF8(host, "")) + "”" }
