package catalog

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/dormouse-run/dormouse"
)

// maxServerURL bounds the URL of a server in a credential.
const maxServerURL = 2047

// ServerURL is a URL of an MCP server as credentials are matched by it: the scheme and the
// host in lower case, without the default port and without a slash at the end. Only https
// is taken, since a credential is sent to nobody who has not proved its name. An
// error does not quote the URL, which could hold a password.
func ServerURL(path, s string) (string, error) {
	if err := checkLength(path, s, 1, maxServerURL); err != nil {
		return "", err
	}
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Host == "" || u.Opaque != "":
		return "", invalidf(path, "is not the URL of a server, such as https://mcp.example.com/sse")
	case !strings.EqualFold(u.Scheme, "https"):
		return "", invalidf(path, "must begin with https://, since a credential is sent nowhere else")
	case u.User != nil:
		return "", invalidf(path, "must not hold a user name or a password")
	case u.Fragment != "" || strings.Contains(s, "#"):
		return "", invalidf(path, "must not have a fragment")
	}
	host, _, port, err := dormouse.ParseAuthority(u.Host)
	if err != nil {
		return "", invalidf(path, "its host must be a name such as mcp.example.com, or an address")
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	key := "https://" + host
	const usual = 443
	if port != 0 && port != usual {
		key += ":" + strconv.Itoa(int(port))
	}
	key += strings.TrimSuffix(u.EscapedPath(), "/")
	if u.RawQuery != "" {
		key += "?" + u.RawQuery
	}
	return key, nil
}
