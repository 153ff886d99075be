package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dormouse-run/dormouse/auth"
)

// running is what a server writes down for clients on its machine.
type running struct {
	Address string `json:"address"`
	PID     int    `json:"pid"`
}

const (
	serverFile = "server.json"
	tokenFile  = "token"
	heldFile   = "heldback"
)

// client talks to one server.
type client struct {
	base  string
	token string
	http  *http.Client
}

// clientFlags are those of every command that talks to a server.
func clientFlags(cmd *cobra.Command) {
	f := cmd.PersistentFlags()
	f.String("server", "", "`URL` of the server; found in --data if not given")
	f.String("token-file", "", "`file` that holds the token; found in --data if not given")
	f.Bool("json", false, "print JSON")
}

// connect finds the server and the token. It sends nothing yet.
func connect(cmd *cobra.Command) (*client, error) {
	flag := func(name string) string { v, _ := cmd.Flags().GetString(name); return v }
	data, server := flag("data"), flag("server")
	if server == "" {
		var r running
		b, err := os.ReadFile(filepath.Join(data, serverFile))
		if err == nil {
			err = json.Unmarshal(b, &r)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("no server runs with its data in %s; start one with \"dormouse serve\" or name one with --server", data)
		}
		if err != nil {
			return nil, fmt.Errorf("find server: %w", err)
		}
		server = "http://" + r.Address
	}
	if !strings.Contains(server, "://") {
		server = "http://" + server
	}
	u, err := url.Parse(server)
	if err != nil || u.Host == "" || u.User != nil {
		return nil, usage("--server %q is not a URL such as http://127.0.0.1:7717", server)
	}
	token := os.Getenv("DORMOUSE_TOKEN") // the one value that may not be on a command line
	if token == "" {
		path := flag("token-file")
		if path == "" {
			path = filepath.Join(data, tokenFile)
		}
		if token, err = auth.ReadToken(path); err != nil {
			return nil, err
		}
	}
	return &client{base: strings.TrimRight(server, "/"), token: token, http: newHTTP()}, nil
}

// newHTTP makes a connection for each request: a command makes few, and one that
// waits to be used again may be dead by then.
func newHTTP() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, TLSHandshakeTimeout: 10 * time.Second,
			ExpectContinueTimeout: callWithin,
		},
		// A redirect would take the token elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// refusal is what the server said instead of yes.
type refusal struct {
	Status  int
	Type    string
	Message string
	Request string
}

func (r *refusal) Error() string {
	if r.Status >= http.StatusInternalServerError {
		return fmt.Sprintf("%s (%d %s, %s)", r.Message, r.Status, r.Type, r.Request)
	}
	return r.Message
}

const callWithin = 90 * time.Second

// call sends in, if not nil, and decodes the answer into out, if not nil. It
// returns the answer's bytes as well.
func (c *client) call(ctx context.Context, method, path string, in, out any) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, callWithin, errors.New("the server did not answer in time"))
	defer cancel()
	return c.wait(ctx, method, path, in, out)
}

// wait is call for what takes as long as it takes.
func (c *client) wait(ctx context.Context, method, path string, in, out any) ([]byte, error) {
	res, err := c.send(ctx, method, path, in)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	const most = 256 << 20
	b, err := io.ReadAll(io.LimitReader(res.Body, most))
	if err != nil {
		return nil, fmt.Errorf("read answer: %w", err)
	}
	if out != nil {
		if err := json.Unmarshal(b, out); err != nil {
			return nil, fmt.Errorf("understand answer: %w", err)
		}
	}
	return b, nil
}

// send returns an answer that is not a refusal. Its body is the caller's.
func (c *client) send(ctx context.Context, method, path string, in any) (*http.Response, error) {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return nil, fmt.Errorf("write request: %w", err)
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return nil, fmt.Errorf("write request: %w", err)
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return c.do(req)
}

// do sends a request, and returns an answer that is not a refusal.
func (c *client) do(req *http.Request) (*http.Response, error) {
	req.Header.Set("Authorization", "Bearer "+c.token)
	res, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("no server answers at %s: %w", c.base, err)
	}
	if res.StatusCode < http.StatusMultipleChoices {
		return res, nil
	}
	defer func() { _ = res.Body.Close() }()
	return nil, readRefusal(res)
}

func readRefusal(res *http.Response) error {
	var body struct {
		Error struct {
			Type    string `json:"type"`
			Message string `json:"message"`
		} `json:"error"`
		Request string `json:"request_id"`
	}
	b, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err != nil || json.Unmarshal(b, &body) != nil || body.Error.Message == "" {
		body.Error.Message = "the server answered " + res.Status
	}
	return &refusal{Status: res.StatusCode, Type: body.Error.Type, Message: body.Error.Message, Request: body.Request}
}

// sessionPath is the path of a session, and of what is below it.
func sessionPath(id string, below ...string) string {
	parts := []string{"/api/sessions", url.PathEscape(id)}
	for _, part := range below {
		parts = append(parts, url.PathEscape(part))
	}
	return strings.Join(parts, "/")
}
