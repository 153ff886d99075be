//go:build linux

package rootfs

import (
	"time"

	"github.com/dormouse-run/dormouse/internal/imagefile"
)

// SetClock gives a store another clock.
func (s *Store) SetClock(now func() time.Time) { s.now = now }

// SetStall says how long a registry may send nothing.
func (s *Store) SetStall(d time.Duration) { s.stall = d }

// ReadTarball reads everything of an image in a tar but its layers.
func ReadTarball(name string) error {
	from, err := imagefile.OpenTar(name)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	found, err := imagefile.Read(from)
	if err != nil {
		return err
	}
	im := image{Image: found}
	_ = im.root()
	return im.Check()
}

// ParseRef reads a reference to a registry and returns it in full.
func ParseRef(text string) (string, error) {
	ref, err := parseRef(text)
	if err != nil {
		return "", err
	}
	return ref.Name(), nil
}

// TryLock takes a lock unless another holder has it.
func TryLock(path string) (unlock func(), err error) { return tryLock(path) }
