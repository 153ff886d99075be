package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// secretFlags say where secrets are read from. None is ever an argument.
type secretFlags struct{ secret, refresh, client string }

func (f *secretFlags) flags(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.secret, "secret-file", "", "`file` that holds the secret; - is standard input, which is read if not given")
	fs.StringVar(&f.refresh, "refresh-token-file", "", "`file` that holds the refresh token of an OAuth credential")
	fs.StringVar(&f.client, "client-secret-file", "", "`file` that holds the client secret of an OAuth credential")
}

// read reads the secret. On a terminal it is typed without being shown.
func (f *secretFlags) read(cmd *cobra.Command) (string, error) {
	if f.secret != "" && f.secret != "-" {
		return readSecretFile(f.secret)
	}
	if tty, ok := cmd.InOrStdin().(*os.File); ok && term.IsTerminal(int(tty.Fd())) {
		fmt.Fprint(cmd.ErrOrStderr(), "Secret: ")
		b, err := term.ReadPassword(int(tty.Fd()))
		fmt.Fprintln(cmd.ErrOrStderr())
		if err != nil {
			return "", fmt.Errorf("read the secret: %w", err)
		}
		return secretIn(b)
	}
	b, err := io.ReadAll(io.LimitReader(cmd.InOrStdin(), maxSecretFile+1))
	if err != nil {
		return "", fmt.Errorf("read the secret: %w", err)
	}
	return secretIn(b)
}

// maxSecretFile is more than any secret may have.
const maxSecretFile = 64 << 10

func readSecretFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("read the secret: %w", err)
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, maxSecretFile+1))
	if err != nil {
		return "", fmt.Errorf("read the secret: %w", err)
	}
	return secretIn(b)
}

// secretIn is the secret in what was read, without the line end that editors put after it.
func secretIn(b []byte) (string, error) {
	s := strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r")
	switch {
	case s == "":
		return "", errors.New("the secret is empty; give it on standard input, or in a file with --secret-file")
	case len(b) > maxSecretFile:
		return "", fmt.Errorf("the secret has more than %d bytes", maxSecretFile)
	}
	return s, nil
}
