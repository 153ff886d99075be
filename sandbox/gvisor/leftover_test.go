//go:build linux

package gvisor_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse/sandbox"
)

func TestAVolumeIsNeverMountedTwice(t *testing.T) {
	h := newHouse(t)
	first := h.create(fence(1, 1))
	h.sh(first, "echo kept >file")
	// Whoever looks at it keeps its file system there when it is out of sight.
	look, err := os.Open(filepath.Join(h.dir, "sessions", string(session), "volume", "upper", "file"))
	if err != nil {
		t.Fatal(err)
	}
	h.freeze(first, fence(1, 1))
	created := make(chan error, 1)
	var second sandbox.Sandbox
	go func() {
		var err error
		second, err = h.Create(within(t), sandbox.Spec{Fence: fence(2, 2)})
		created <- err
	}()
	select {
	case err := <-created:
		t.Errorf("the next sandbox came up beside a file system of the same volume: %v", err)
	case <-time.After(2 * time.Second):
	}
	if err := look.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-created; err != nil {
		t.Fatal(err)
	}
	defer func() { _ = second.Close() }()
	if got := h.sh(second, "cat file"); got != "kept" {
		t.Errorf("it has %q", got)
	}
}
