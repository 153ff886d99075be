package runner

import (
	"fmt"
	"os"
)

// shortDir returns a short name of a directory, good until done is called.
func shortDir(dir string) (short string, done func(), err error) {
	f, err := os.Open(dir)
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("/proc/self/fd/%d", f.Fd()), func() { _ = f.Close() }, nil
}
