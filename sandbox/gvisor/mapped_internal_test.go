//go:build linux

package gvisor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func readMappings(list string) (mappings, error) {
	m := mappings{paths: make(map[string]bool), room: mostMapped}
	err := m.read(strings.NewReader(list))
	return m, err
}

func TestFilesThatAreWrittenToAsMemoryAreFound(t *testing.T) {
	const list = `7ef89cd9b000-7ef89cd9d000 rw-s 00000000 00:45 839687                     /root/.dormouse/slot/ws/mapped
7ef89cd9b000-7ef89cd9d000 rw-s 00000000 00:45 839687                     /root/.dormouse/slot/ws/a b/c  d\012e
7ef89cd9b000-7ef89cd9d000 rw-s 00000000 00:45 839687                     /root/.dormouse/slot/ws/gone (deleted)
7ef89cd9b000-7ef89cd9d000 rw-s 00000000 00:45 839687                     /root/.dormouse/slot/ws/x/.dormouse/slot/ws/y
7ef89cd9b000-7ef89cd9d000 r--s 00000000 00:45 839687                     /root/.dormouse/slot/ws/only-read
7ef89cd9b000-7ef89cd9d000 rw-p 00000000 00:45 839687                     /root/.dormouse/slot/ws/private
7ef89cd9b000-7ef89cd9d000 rw-s 00000000 00:45 839687                     /root/.dormouse/slot/home/elsewhere
7ef89cd9b000-7ef89cd9d000 rw-s 00000000 00:01 1                          /memfd:runsc-memory (deleted)
7ef89cd9b000-7ef89cd9d000 rw-p 00000000 00:00 0
`
	m, err := readMappings(list)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"a b/c  d\ne", "gone", "gone (deleted)", "mapped", "x/.dormouse/slot/ws/y"}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(m.paths))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestOnlySoManyMappedFilesAreTold(t *testing.T) {
	var list strings.Builder
	for i := range mostMapped / 1000 {
		fmt.Fprintf(&list, "0-1 rw-s 0 0:0 1 /.dormouse/slot/ws/%d%s\n", i, strings.Repeat("x", 1000))
	}
	if m, err := readMappings(list.String()); err == nil || m.room > 0 {
		t.Errorf("%d bytes of names are held, %v", mostMapped-m.room, err)
	}
}

func TestALookAtWhatIsMappedEndsWhenNobodyWaits(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	if _, err := mappedIn(ctx, os.Getpid()); err != nil {
		t.Fatal(err)
	}
	gone := errors.New("the session has ended")
	cancel(gone)
	if _, err := mappedIn(ctx, os.Getpid()); !errors.Is(err, gone) {
		t.Errorf("got %v", err)
	}
}

// FuzzMappings reads what a kernel says that those inside have mapped, in memory that
// its bytes can account for.
func FuzzMappings(f *testing.F) {
	f.Add("0-1 rw-s 0 0:0 1 /.dormouse/slot/ws/a (deleted)\n")
	f.Fuzz(func(t *testing.T, list string) {
		const least, perByte = 64 << 10, 64
		var m mappings
		for try := 1; ; try++ { // others in this process take some, too
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			m, _ = readMappings(list)
			runtime.ReadMemStats(&after)
			took := after.TotalAlloc - before.TotalAlloc
			if took <= uint64(least+perByte*len(list)) {
				break
			}
			if try == 5 {
				t.Fatalf("%d bytes took %d", len(list), took)
			}
		}
		bytes := 0
		for path := range m.paths {
			bytes += len(path)
		}
		if bytes > 2*len(list) {
			t.Errorf("%d bytes became %d", len(list), bytes)
		}
	})
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
