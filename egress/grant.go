package egress

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/vault"
)

// Credentials knows what sessions have been granted.
type Credentials interface {
	// Grants returns what a session has been granted. It is asked at every request, so
	// that what was granted, rotated or revoked holds from the next request on, and must
	// be quick. A session that may be waiting for a credential gets an error rather than
	// an empty list: its requests are then refused.
	Grants(ctx context.Context, session dormouse.SessionID) ([]Grant, error)
}

// Grant is a credential that a session may use, and where.
type Grant struct {
	Vault      string
	Credential string

	// Hosts are those that get the secret, over https. Port 80 never does.
	Hosts []dormouse.Host
	// Methods are those that may carry it; none means all.
	Methods []string
	// Paths are prefixes that end where a segment does, such as /owner/repository; none
	// means all.
	Paths []string

	// Bearer says that the secret is the bearer token of every request that the grant
	// covers, whatever the program sent as its Authorization. Otherwise the secret takes
	// the place of the placeholder.
	Bearer bool
	// Placeholder is what the sandbox holds instead of the secret.
	Placeholder string
	// Header and Body say where the placeholder is swapped.
	Header, Body bool

	// Secret returns the secret as it is now. An error means that the request is not sent.
	Secret func(ctx context.Context) (vault.Secret, error)
	// Revoked is closed when the grant is no more: whatever uses it then ends.
	Revoked <-chan struct{}
}

// covers reports whether requests to t may carry the secret.
func (g *Grant) covers(t target) bool {
	return t.port != plainPort && slices.ContainsFunc(g.Hosts, func(h dormouse.Host) bool { return h.Covers(t.host, t.port) })
}

// refuses says why a request of this method and path does not get the secret though its
// host does, or nothing if it may.
func (g *Grant) refuses(method, path string) string {
	if len(g.Methods) > 0 && !slices.Contains(g.Methods, method) {
		return "its grant does not include this method"
	}
	if len(g.Paths) > 0 && !slices.ContainsFunc(g.Paths, func(p string) bool { return under(path, p) }) {
		return "its grant does not include this path"
	}
	return ""
}

// under reports whether a path is the prefix or below it.
func under(path, prefix string) bool {
	rest, ok := strings.CutPrefix(path, prefix)
	return ok && (rest == "" || rest[0] == '/' || strings.HasSuffix(prefix, "/"))
}

// covering returns the grants that cover t.
func covering(grants []Grant, t target) []Grant {
	var found []Grant
	for i := range grants {
		if grants[i].covers(t) {
			found = append(found, grants[i])
		}
	}
	return found
}

// grants asks what the session has been granted now.
func (w *sessionProxy) grants(ctx context.Context) ([]Grant, error) {
	if w.proxy.opts.Credentials == nil {
		return nil, nil
	}
	granted, err := w.proxy.opts.Credentials.Grants(ctx, w.who.ID)
	if err != nil {
		return nil, &unavailable{what: "what this session has been granted is not known just now", err: err}
	}
	return granted, nil
}

// reveal fetches the secret of a grant and returns its value. A value that could end a
// line or a header is none.
func (g *Grant) reveal(ctx context.Context) (string, error) {
	if g.Secret == nil {
		return "", &unavailable{what: g.unavailable()}
	}
	secret, err := g.Secret(ctx)
	if err != nil {
		return "", &unavailable{what: g.unavailable(), err: err}
	}
	value := secret.Reveal()
	if value == "" || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return "", &unavailable{what: g.unavailable() + ", as its value is empty or has control characters"}
	}
	return value, nil
}

func (g *Grant) unavailable() string {
	return fmt.Sprintf("the credential %s cannot be used just now", g.Credential)
}

// unavailable says what a request needs that is not there. The error behind it is for
// the audit alone.
type unavailable struct {
	what string
	err  error
}

func (u *unavailable) Error() string {
	if u.err == nil {
		return u.what
	}
	return u.what + ": " + u.err.Error()
}

func (u *unavailable) Unwrap() error { return u.err }
