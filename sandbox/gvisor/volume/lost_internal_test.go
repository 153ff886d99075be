//go:build linux

package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/sandbox"
)

// fromLost is a recovery whose newest snapshot is lost, with an older one of one file.
func fromLost(t *testing.T, why error) sandbox.Recovery {
	t.Helper()
	r := recovery(t)
	older := r.Newest
	r.Snapshot, r.Older = "snap_2", older
	r.Newest = func(context.Context) ([]string, func(), error) { return nil, nil, why }
	return r
}

var errLost = fmt.Errorf("%w: a blob is not there", sandbox.ErrSnapshotLost)

// Files that cannot be compared, because the newest snapshot is lost, stay as they were
// found: they are the newest there are. That is told.
func TestFilesWhoseSnapshotIsLostStay(t *testing.T) {
	d, v := newFailing(t)
	must(t, v.clearFailure())
	_, err := d.openAs(v)
	must(t, err)
	must(t, v.CreateWorkspace(t.Context(), sandbox.Workspace{}))
	must(t, os.WriteFile(filepath.Join(v.Upper(0).Host(), "kept"), []byte("newer than the older one"), 0o600))
	must(t, d.Close(v))
	must(t, v.recordCondition(sandbox.Cut, "the machine ended"))

	if done, err := d.Recover(t.Context(), fromLost(t, dormouse.ErrUnavailable)); !errors.Is(err, dormouse.ErrUnavailable) {
		t.Errorf("with a store that is away it is %+v, %v", done, err)
	}
	wantCondition(t, v, sandbox.Cut)
	done, err := d.Recover(t.Context(), fromLost(t, errLost))
	if err != nil || done == nil || !strings.Contains(done.Lost, "a blob is not there") || done.Count > 0 {
		t.Fatalf("recovered is %+v, %v", done, err)
	}
	wantCondition(t, v, sandbox.Sound)
	_, err = d.openAs(v)
	must(t, err)
	defer func() { must(t, d.Close(v)) }()
	if raw, err := os.ReadFile(filepath.Join(v.Upper(0).Host(), "kept")); err != nil || string(raw) != "newer than the older one" {
		t.Errorf("of what was found there is %q, %v", raw, err)
	}
}

// Where nothing is left to be found, the files of the older snapshots come back.
func TestVolumeThatIsGoneWithItsSnapshotHasTheOlderOne(t *testing.T) {
	d, v := newFailing(t)
	ruin(t, v)
	done, err := d.Recover(t.Context(), fromLost(t, errLost))
	if err != nil || done == nil || done.Lost == "" || done.Count != 1 || done.Aside == "" {
		t.Fatalf("recovered is %+v, %v", done, err)
	}
	wantRecovered(t, d, v, false)
}
