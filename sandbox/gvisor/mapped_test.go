//go:build linux

package gvisor

import (
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMappedFilesAreFoundWhateverTheyAreCalled(t *testing.T) {
	const maps = `7ef89cd9b000-7ef89cd9d000 rw-s 00000000 00:45 839687                     /root/.dormouse/slot/ws/mapped
7ef89cd9b000-7ef89cd9d000 rw-s 00000000 00:45 839687                     /root/.dormouse/slot/ws/a b/c  d\012e
7ef89cd9b000-7ef89cd9d000 rw-s 00000000 00:45 839687                     /root/.dormouse/slot/ws/gone (deleted)
7ef89cd9b000-7ef89cd9d000 rw-s 00000000 00:45 839687                     /root/.dormouse/slot/ws/x/.dormouse/slot/ws/y
7ef89cd9b000-7ef89cd9d000 r--s 00000000 00:45 839687                     /root/.dormouse/slot/ws/only-read
7ef89cd9b000-7ef89cd9d000 rw-p 00000000 00:45 839687                     /root/.dormouse/slot/ws/private
7ef89cd9b000-7ef89cd9d000 rw-s 00000000 00:45 839687                     /root/.dormouse/slot/home/elsewhere
7ef89cd9b000-7ef89cd9d000 rw-s 00000000 00:01 1                          /memfd:runsc-memory (deleted)
7ef89cd9b000-7ef89cd9d000 rw-s 00000000 00:00 0
`
	want := []string{"a b/c  d\ne", "gone", "gone (deleted)", "mapped", "x/.dormouse/slot/ws/y"}
	got := mappedIn([]byte(maps))
	slices.Sort(got)
	if diff := cmp.Diff(want, slices.Compact(got)); diff != "" {
		t.Errorf("mapped (-want +got):\n%s", diff)
	}
}

func TestChildrenAreFoundWithOrWithoutTheListOfThem(t *testing.T) {
	child := exec.Command("sleep", "1000")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = child.Process.Kill(), child.Wait() }()
	for name, find := range map[string]func(int) ([]int, error){"with": children, "without": childrenOf} {
		if found, err := find(os.Getpid()); err != nil || !slices.Contains(found, child.Process.Pid) || slices.Contains(found, os.Getpid()) {
			t.Errorf("%s it: %v, %v", name, found, err)
		}
	}
}
