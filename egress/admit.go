package egress

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// overrides are headers by which a request says that its method is another.
var overrides = []string{"X-Http-Method-Override", "X-Http-Method", "X-Method-Override"}

// admit refuses an intercepted request that must not leave, and returns what the session
// has been granted now. Whatever was true of the connection is asked again: it may be old.
func (w *sessionProxy) admit(r *http.Request, c *terminated) ([]Grant, error) {
	if err := c.same(r); err != nil {
		return nil, err
	}
	if err := w.proxy.opts.Policy(w.who).check(c.to, w.proxy.opts.PackageHosts); err != nil {
		return nil, err
	}
	if err := checkMethod(r); err != nil {
		return nil, err
	}
	granted, err := w.grants(r.Context())
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(covering(granted, c.to), func(g Grant) bool { return len(g.Paths) > 0 }) {
		// The path as it was written: what net/url makes of it is another.
		written, _, _ := strings.Cut(r.RequestURI, "?")
		if r.URL.Host != "" {
			written = r.URL.EscapedPath()
		}
		if err := checkPath(written); err != nil {
			return nil, err
		}
	}
	return granted, nil
}

// same refuses a request that is for another host than the connection: the name in the
// ClientHello, the Host of the request and that of CONNECT are one.
func (t *terminated) same(r *http.Request) error {
	wrong := answer{http.StatusMisdirectedRequest, verdictRefused, "The connection was made to " + t.to.String() + ", and the request or its TLS connection is meant for another host."}
	if !t.named {
		return wrong
	}
	hosts := append([]string{r.Host}, r.Header["Host"]...) // HTTP/2 can have both
	if r.URL.Host != "" {
		hosts = append(hosts, r.URL.Host)
	}
	for _, host := range hosts {
		if said, err := parseTarget(host, securePort); err != nil || said != t.to {
			return wrong
		}
	}
	if r.URL.User != nil || r.URL.Scheme != "" && r.URL.Scheme != "https" {
		return wrong
	}
	return nil
}

// checkMethod refuses methods that bring back what was sent, or that may be another.
func checkMethod(r *http.Request) error {
	if r.Method == http.MethodTrace || r.Method == http.MethodConnect || strings.EqualFold(r.Method, "TRACK") {
		return answer{http.StatusMethodNotAllowed, verdictRefused, "The method " + r.Method[:min(len(r.Method), maxMethod)] + " is not let through to a host that a credential is for."}
	}
	for _, name := range overrides {
		if len(r.Header[name]) > 0 {
			return answer{http.StatusBadRequest, verdictInvalid, "The header " + name + " is not let through to a host that a credential is for: what may be done there depends on the method."}
		}
	}
	if r.RequestURI == "*" {
		return answer{http.StatusBadRequest, verdictInvalid, "The request has no path."}
	}
	return nil
}

// noteUnattached tells the audit of placeholders in a request that goes out in the clear.
func (w *sessionProxy) noteUnattached(ctx context.Context, rec *record, h http.Header) {
	granted, err := w.grants(ctx)
	if err != nil {
		return // it carries no credential in any case
	}
	for i := range granted {
		if holds(h, granted[i].Placeholder) {
			rec.note(&granted[i], "the request is not https")
		}
	}
}

// inURL reports whether a placeholder is in a URL, where it is not swapped: URLs are
// logged on their way.
func inURL(u *url.URL, placeholder string) bool {
	return placeholder != "" && (strings.Contains(u.RawQuery, placeholder) || strings.Contains(u.Path, placeholder))
}
