//go:build !windows

package main

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/atomicfile"
)

//go:embed all:embedded
var embedded embed.FS

var errNoRunner = errors.New("this build has no runner inside; run make build")

// embeddedRunner is the program that runs inside sandboxes.
func embeddedRunner() ([]byte, error) {
	b, err := embedded.ReadFile("embedded/dormouse-runner")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errNoRunner
	}
	return b, err
}

// placeRunner puts the runner where sandboxes can be started from it. Its name
// says what it is, so that another version never changes under a sandbox.
func placeRunner(data string) (string, error) {
	b, err := embeddedRunner()
	if err != nil {
		return "", err
	}
	const enough = 16
	digest := string(dormouse.DigestOf(b))
	path := filepath.Join(data, "bin", "dormouse-runner-"+digest[len("sha256:"):][:enough])
	if info, err := os.Stat(path); err == nil && info.Size() == int64(len(b)) {
		return path, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", fmt.Errorf("place runner: %w", err)
	}
	if err := atomicfile.Write(path, b, 0o700); err != nil {
		return "", fmt.Errorf("place runner: %w", err)
	}
	return path, nil
}
