package main

import (
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/pflag"
)

// dsn is where a database is. It may hold a password and therefore does not
// print what it holds.
type dsn struct { //nolint:recvcheck // what prints it has a copy, and what reads its file has not
	empty bool // a flag, a variable or a file says nothing
	value string
	file  string // that has the value, if the value was not said
}

// String is the URL without its password, if it can be parsed well enough to find that.
func (d dsn) String() string {
	if d.value == "" {
		return ""
	}
	u, err := url.Parse(d.value)
	if err != nil || u.Scheme == "" || u.Opaque != "" {
		return "[secret]"
	}
	return u.Scheme + "://" + u.Host + u.Path
}

// GoString is String for the verb %#v.
func (d dsn) GoString() string { return d.String() }

// LogValue is String for logs.
func (d dsn) LogValue() slog.Value { return slog.StringValue(d.String()) }

const (
	storeName     = "store"
	storeFileName = "store-file"
)

// storeFlag adds the flags that say where the database is.
func storeFlag(f *pflag.FlagSet, d *dsn) {
	f.Func(storeName, "`URL` of a PostgreSQL database, which several servers may share; SQLite in --data if not given. A URL with a password belongs in --store-file or DORMOUSE_STORE", func(v string) error {
		d.empty = v == ""
		d.value = strings.Clone(v) // pflag would print a value that is refused here, so check refuses it
		return nil
	})
	f.StringVar(&d.file, storeFileName, "", "`file` with that URL, for one with a password")
}

// check reads the URL if it is in a file, and refuses one that is of no database we
// support.
func (d *dsn) check() error {
	if d.empty {
		return usage("--%s is empty; leave it out for SQLite in --data", storeName)
	}
	if d.file != "" {
		if d.value != "" {
			return usage("--%s and --%s both say where the database is; leave one of them out", storeName, storeFileName)
		}
		if err := d.read(); err != nil {
			return err
		}
	}
	if d.value == "" {
		return nil
	}
	if _, err := url.Parse(d.value); err != nil || !strings.HasPrefix(d.value, "postgres://") && !strings.HasPrefix(d.value, "postgresql://") {
		return usage("--store is not a URL such as postgres://dormouse@db.example/dormouse; leave it out for SQLite in --data")
	}
	return nil
}

// read takes the URL from the file, once.
func (d *dsn) read() error {
	const most = 8 << 10
	f, err := os.Open(d.file)
	if err != nil {
		return fmt.Errorf("read --%s: %w", storeFileName, err)
	}
	defer func() { _ = f.Close() }()
	raw, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return fmt.Errorf("read --%s: %w", storeFileName, err)
	}
	value := strings.TrimSpace(string(raw))
	if value == "" || len(raw) > most || strings.ContainsAny(value, "\r\n") {
		return usage("--%s %s holds no URL", storeFileName, d.file)
	}
	d.value, d.file = value, ""
	return nil
}

// secrets are the secret parts of a URL, both as written there and with escapes decoded.
func secrets(raw string) (found []string) {
	add := func(s string) {
		if s != "" {
			found = append(found, s)
		}
	}
	u, err := url.Parse(raw)
	if err != nil {
		return []string{raw}
	}
	if p, ok := u.User.Password(); ok {
		add(p)
		add(url.QueryEscape(p))
		_, escaped, _ := strings.Cut(u.User.String(), ":")
		add(escaped)
		authority, _, _ := strings.Cut(strings.TrimPrefix(raw, u.Scheme+"://"), "/")
		_, escaped, _ = strings.Cut(authority[:max(strings.LastIndex(authority, "@"), 0)], ":")
		add(escaped)
	}
	for pair := range strings.SplitSeq(u.RawQuery, "&") {
		name, value, _ := strings.Cut(pair, "=")
		if strings.Contains(strings.ToLower(name), "password") {
			add(value)
			meant, _ := url.QueryUnescape(value)
			add(meant)
		}
	}
	return found
}

// hide takes out of an error what the URL keeps secret.
func (d dsn) hide(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	for _, s := range secrets(d.value) {
		text = strings.ReplaceAll(text, s, "[secret]")
	}
	if text == err.Error() {
		return err
	}
	return &hidden{err, text}
}

// hidden is an error without the secrets in its text.
type hidden struct {
	err  error
	text string
}

func (h *hidden) Error() string { return h.text }
func (h *hidden) Unwrap() error { return h.err }
