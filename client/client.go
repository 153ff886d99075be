package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Options say which server to use and how to reach it.
type Options struct {
	// URL is the address of the server, such as http://127.0.0.1:7717, and Token its
	// access token.
	URL   string
	Token string
	// Locate, if it is not nil, is called before every request and replaces URL and
	// Token: a restarted server may listen elsewhere. Its error is returned unchanged.
	Locate func(context.Context) (Server, error)
	// HTTP is copied and sends the requests; nil stands for a zero http.Client. Redirects
	// are never followed, whatever its CheckRedirect says. Its Timeout also ends streams.
	HTTP *http.Client
	// Timeout bounds requests that the server answers at once; 0 stands for 90 s. Commands,
	// copies, snapshots, restores and streams are bounded only by their context.
	Timeout time.Duration
}

// Server is the address of a server and its access token.
type Server struct{ URL, Token string }

// Client sends requests to one server.
type Client struct {
	locate  func(context.Context) (Server, error)
	http    *http.Client
	timeout time.Duration
}

// New returns a client. It sends no request.
func New(o Options) (*Client, error) {
	c := &Client{locate: o.Locate, http: new(http.Client), timeout: o.Timeout}
	if c.locate == nil {
		if err := CheckURL(o.URL); err != nil {
			return nil, err
		}
		s := Server{strings.TrimRight(o.URL, "/"), o.Token}
		c.locate = func(context.Context) (Server, error) { return s, nil }
	}
	if o.HTTP != nil {
		*c.http = *o.HTTP
	}
	c.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	if c.timeout == 0 {
		c.timeout = 90 * time.Second
	}
	return c, nil
}

// CheckURL returns an error if server is not an http or https URL with a host.
func CheckURL(server string) error {
	u, err := url.Parse(server)
	if err != nil || u.Host == "" || u.User != nil || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("%q is not a URL such as http://127.0.0.1:7717", server)
	}
	return nil
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Ready returns nil if the server accepts requests.
func (c *Client) Ready(ctx context.Context) error {
	return c.Call(ctx, http.MethodGet, "/readyz", nil, nil)
}

var errTimeout = errors.New("the server did not answer in time")

// within adds the timeout for a request that the server answers at once.
func (c *Client) within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, c.timeout, errTimeout)
}
