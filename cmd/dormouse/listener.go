//go:build !windows

package main

import (
	"log/slog"
	"net/http"
	"syscall"
	"time"

	"github.com/dormouse-run/dormouse/internal/lograte"
)

const (
	defaultConns = 2048
	leastConns   = 16
)

// newHTTPServer is how we serve HTTP: a connection that sends no request is
// closed, and the size of a request is limited. Streams set deadlines of their
// own.
func newHTTPServer(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 2 * time.Minute, WriteTimeout: 2 * time.Minute,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(lograte.New(log.Handler(), lograte.Options{Together: true}), slog.LevelDebug),
	}
}

// mostConns is the maximum number of connections: half of the open files that this
// process may have. The other half is for everything else.
func mostConns(want int) int {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err == nil {
		want = int(min(uint64(want), files.Cur/2)) //nolint:gosec // no more than was wanted
	}
	return max(want, leastConns)
}
