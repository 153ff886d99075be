package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dormouse-run/dormouse/auth"
	"github.com/dormouse-run/dormouse/client"
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

// clientFlags are those of every command that talks to a server.
func clientFlags(cmd *cobra.Command) {
	f := cmd.PersistentFlags()
	f.String("server", "", "`URL` of the server; found in --data if not given")
	f.String("token-file", "", "`file` that holds the token; found in --data if not given")
	f.Bool("json", false, "print JSON")
}

// connect finds the server and the token. It sends nothing yet. A server that is
// restarted later, and may listen elsewhere then, is found again.
func connect(cmd *cobra.Command) (*client.Client, error) {
	if _, err := findServer(cmd); err != nil {
		return nil, err
	}
	return client.New(client.Options{
		Locate: func(context.Context) (client.Server, error) { return findServer(cmd) }, HTTP: newHTTP(),
	})
}

func findServer(cmd *cobra.Command) (at client.Server, err error) {
	flag := func(name string) string { v, _ := cmd.Flags().GetString(name); return v }
	data, server := flag("data"), flag("server")
	if server == "" {
		var r running
		b, err := os.ReadFile(filepath.Join(data, serverFile))
		if err == nil {
			err = json.Unmarshal(b, &r)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return at, fmt.Errorf("no server runs with its data in %s; start one with \"dormouse serve\" or name one with --server", data)
		}
		if err != nil {
			return at, fmt.Errorf("find server: %w", err)
		}
		server = "http://" + r.Address
	}
	if !strings.Contains(server, "://") {
		server = "http://" + server
	}
	if err := client.CheckURL(server); err != nil {
		return at, usage("--server %w", err)
	}
	token := os.Getenv("DORMOUSE_TOKEN") // the one value that may not be on a command line
	if token == "" {
		path := flag("token-file")
		if path == "" {
			path = filepath.Join(data, tokenFile)
		}
		if token, err = auth.ReadToken(path); err != nil {
			return at, err
		}
	}
	return client.Server{URL: strings.TrimRight(server, "/"), Token: token}, nil
}

// newHTTP makes a connection for each request: a command makes few, and one that
// waits to be used again may be dead by then.
func newHTTP() *http.Client {
	return &http.Client{Transport: &http.Transport{
		Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, TLSHandshakeTimeout: 10 * time.Second,
		ExpectContinueTimeout: 90 * time.Second,
	}}
}

// ask asks for something and prints the answer: as it came if JSON was asked for,
// otherwise by show.
func ask[T any](cmd *cobra.Command, do func(context.Context, *client.Client) (T, error), show func(io.Writer, T) error) error {
	c, err := connect(cmd)
	if err != nil {
		return err
	}
	var raw []byte
	answer, err := do(client.KeepAnswer(cmd.Context(), &raw), c)
	if err != nil {
		return err
	}
	return printed(cmd, raw, func(w io.Writer) error { return show(w, answer) })
}

// exactly returns a limit as it was given. The client takes 0 for the default limit, and
// the server has to refuse it.
func exactly(limit int) int {
	if limit == 0 {
		return -1
	}
	return limit
}
