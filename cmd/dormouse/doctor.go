//go:build !windows

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/dormouse-run/dormouse/store"
)

// finding is what one check found.
type finding struct {
	Check  string `json:"check"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
}

func newDoctor() *cobra.Command {
	var c config
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check that a server can work here",
		Long:  "Check what a server needs of this machine, without changing anything that lasts.",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c.Data, _ = cmd.Flags().GetString("data")
			if err := c.check(); err != nil {
				return err
			}
			syscall.Umask(ownMask)
			return doctor(cmd, c)
		},
	}
	c.flags(cmd.Flags())
	cmd.Flags().Bool("json", false, "print JSON")
	return cmd
}

func doctor(cmd *cobra.Command, c config) error {
	up := serverAnswers(cmd.Context(), c.Data)
	var findings []finding
	bad := false
	for _, check := range []struct {
		name string
		run  func() (string, error)
	}{
		{"data directory", func() (string, error) { return checkData(c.Data) }},
		{"server", func() (string, error) { return checkServer(c, up) }},
		{"database", func() (string, error) { return checkDatabase(cmd.Context(), c, up != "") }},
		{"vault keys", func() (string, error) { return checkVaultKeys(cmd.Context(), c, up != "") }},
		{"blobs", func() (string, error) { return checkBlobs(cmd.Context(), c) }},
		{"runner", func() (string, error) { return checkRunner(c) }},
		{"bash", func() (string, error) { return exec.LookPath("bash") }},
		{"sandbox", func() (string, error) { return checkSandbox(cmd.Context(), c) }},
	} {
		detail, err := check.run()
		if err != nil {
			detail, bad = err.Error(), true
		}
		findings = append(findings, finding{check.name, err == nil, detail})
	}
	if err := printFindings(cmd, findings); err != nil {
		return err
	}
	if bad {
		return errSilent
	}
	return nil
}

func printFindings(cmd *cobra.Command, findings []finding) error {
	if asJSON, _ := cmd.Flags().GetBool("json"); asJSON {
		return json.NewEncoder(cmd.OutOrStdout()).Encode(map[string][]finding{"checks": findings})
	}
	var rows [][]string
	for _, f := range findings {
		mark := "ok"
		if !f.OK {
			mark = "BAD"
		}
		rows = append(rows, []string{f.Check, mark, f.Detail})
	}
	if err := table(cmd.OutOrStdout(), "CHECK\t\tDETAIL", rows); err != nil {
		return err
	}
	for _, f := range findings { // in a table only its beginning can be read
		if !f.OK {
			fmt.Fprintf(cmd.OutOrStdout(), "\n%s: %s\n", f.Check, f.Detail)
		}
	}
	return nil
}

// checkData writes and syncs a file where the server would.
func checkData(data string) (string, error) {
	if err := os.MkdirAll(data, 0o700); err != nil {
		return "", err
	}
	wide, err := checkOwn(data)
	if err != nil {
		return "", err
	}
	f, err := os.CreateTemp(data, ".doctor-*")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	defer func() { _ = f.Close() }()
	const times = 5
	start := time.Now()
	for range times {
		if _, err := f.Write(make([]byte, 4096)); err != nil {
			return "", err
		}
		if err := f.Sync(); err != nil {
			return "", err
		}
	}
	detail := fmt.Sprintf("%s, a write reaches the disk in %v", data, (time.Since(start) / times).Round(10*time.Microsecond))
	var space syscall.Statfs_t
	if err := syscall.Statfs(data, &space); err == nil {
		detail += fmt.Sprintf(", %d MiB free", space.Bavail*uint64(space.Bsize)>>20) //nolint:gosec // a block has a size
	}
	if wide != 0 {
		detail += fmt.Sprintf(", others can read it (mode %s) until the next start closes it", modeOf(wide))
	}
	return detail, nil
}

// serverAnswers returns the address of the server that uses data, if one does.
func serverAnswers(ctx context.Context, data string) string {
	b, err := os.ReadFile(filepath.Join(data, serverFile))
	var r running
	if err != nil || json.Unmarshal(b, &r) != nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.Address+"/healthz", nil)
	if err != nil {
		return ""
	}
	res, err := newHTTP().Do(req)
	if err != nil {
		return ""
	}
	_ = res.Body.Close()
	return r.Address
}

func checkServer(c config, up string) (string, error) {
	if up != "" {
		return "answers at " + up, nil
	}
	l, err := net.Listen("tcp", c.Listen) //nolint:noctx // it is closed at once
	if err != nil {
		return "", fmt.Errorf("%w, and no server of this directory answers", err)
	}
	_ = l.Close()
	return "not running, " + c.Listen + " is free", nil
}

// checkDatabase opens the database, unless a server has it locked or opening it would
// migrate it.
func checkDatabase(ctx context.Context, c config, up bool) (string, error) {
	if c.Store.value == "" && up {
		holder, _ := os.ReadFile(filepath.Join(c.Data, "dormouse.lock"))
		return "in use by process " + strings.TrimSpace(string(holder)), nil
	}
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	at, newest, err := schemaOf(ctx, c.Data, c.Store)
	switch {
	case err != nil:
		return "", err
	case at == 0:
		return "none yet; the first start makes it", nil
	case at < newest:
		return fmt.Sprintf("schema is at step %d; the next start brings it to %d", at, newest), nil
	}
	s, err := openStore(ctx, c.Data, c.Store, slog.New(slog.DiscardHandler))
	if err != nil {
		return "", err
	}
	detail, err := "opens, schema is up to date", s.Check(ctx)
	if at > newest {
		detail = fmt.Sprintf("opens, schema is at step %d and this program knows %d, which it may", at, newest)
	}
	if f, ok := s.(store.Fleet); ok && err == nil {
		detail, err = checkFleet(ctx, c, f)
	}
	return detail, errors.Join(err, s.Close())
}

// checkFleet says which servers use the database.
func checkFleet(ctx context.Context, c config, f store.Fleet) (string, error) {
	servers, err := f.Servers(ctx)
	if err != nil {
		return "", err
	}
	names := make([]string, len(servers))
	for i, s := range servers {
		names[i] = s.Name + " at " + s.Addr
	}
	if len(names) == 0 {
		names = []string{"no server"}
	}
	return fmt.Sprintf("%s opens, schema is up to date, used by %s", c.Store, strings.Join(names, ", ")), nil
}

func checkRunner(c config) (string, error) {
	if c.Runner != "" {
		return exec.LookPath(c.Runner)
	}
	b, err := embeddedRunner()
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("inside this program, %d KiB", len(b)>>10), nil
}
