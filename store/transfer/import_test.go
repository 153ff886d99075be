package transfer_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
	"github.com/dormouse-run/dormouse/store/archive"
	"github.com/dormouse-run/dormouse/store/memory"
	"github.com/dormouse-run/dormouse/store/transfer"
	"github.com/dormouse-run/dormouse/store/transfer/transfertest"
)

// dying is a store that is gone after so many writes.
type dying struct {
	store.Store
	left int
}

var errDead = errors.New("killed")

func (d *dying) write(do func() error) error {
	if d.left--; d.left < 0 {
		return errDead
	}
	return do()
}

func (d *dying) Import(ctx context.Context, b store.Batch) error {
	return d.write(func() error { return d.Store.Import(ctx, b) })
}

func (d *dying) Append(ctx context.Context, b store.Batch) error {
	return d.write(func() error { return d.Store.Append(ctx, b) })
}

func (d *dying) Rebuild(ctx context.Context, id dormouse.SessionID, rows dormouse.Rows) error {
	return d.write(func() error { return d.Store.Rebuild(ctx, id, rows) })
}

func (d *dying) InsertVersion(ctx context.Context, doc store.Document) error {
	return d.write(func() error { return d.Store.InsertVersion(ctx, doc) })
}

func (d *dying) Insert(ctx context.Context, doc store.Document) error {
	return d.write(func() error { return d.Store.Insert(ctx, doc) })
}

func TestAnImportThatDiesBetweenAnyTwoWritesCompletes(t *testing.T) {
	old, file := transfertest.OldData(t), filepath.Join(t.TempDir(), "archive")
	was := transfertest.Open(t, old)
	if _, err := transfer.ExportFile(t.Context(), was, file, quiet{}); err != nil {
		t.Fatal(err)
	}
	want, documents := transfertest.Contents(t, was), transfertest.Documents(t, was)
	take := func(d transfer.Deployment) error {
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		_, err = transfer.Import(t.Context(), f, d, false, quiet{})
		return err
	}
	blobs := transfertest.Open(t, t.TempDir()).Blobs
	n := 0
	for died := true; died; n++ {
		d := transfer.Deployment{Store: new(memory.Store), Blobs: blobs}
		err := take(transfer.Deployment{Store: &dying{d.Store, n}, Blobs: d.Blobs})
		if died = errors.Is(err, errDead); !died && err != nil {
			t.Fatal(err)
		}
		if died {
			half(t, d, want)
			shown := transfertest.Documents(t, d)
			whole := slices.DeleteFunc(slices.Clone(documents), func(v archive.Version) bool {
				return !slices.ContainsFunc(shown, func(s archive.Version) bool { return s.Ref() == v.Ref() })
			})
			if len(shown) != len(whole) || len(shown) > 0 && !reflect.DeepEqual(shown, whole) {
				t.Errorf("after %d writes a document is shown before its past is there", n)
			}
		}
		if err := take(d); err != nil {
			t.Fatalf("after %d writes: %v", n, err)
		}
		if diff := cmp.Diff(want, transfertest.Contents(t, d), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("after %d writes (-want +got):\n%s", n, diff)
		}
		if !reflect.DeepEqual(documents, transfertest.Documents(t, d)) {
			t.Fatalf("after %d writes there are other documents", n)
		}
	}
	if n < 40 {
		t.Errorf("only %d writes", n)
	}
}

// half checks that nothing runs or shows a session that is not all there.
func half(t *testing.T, d transfer.Deployment, whole map[dormouse.SessionID]transfertest.Content) {
	t.Helper()
	due, err := d.Store.Due(t.Context(), time.Now(), 100)
	if err != nil {
		t.Fatal(err)
	}
	listed, err := d.Store.Sessions(t.Context(), store.Query{Tenant: "local", Limit: 100, Archived: true})
	if err != nil {
		t.Fatal(err)
	}
	shown := due
	for _, row := range listed {
		shown = append(shown, row.Session)
	}
	now := transfertest.Contents(t, d)
	for _, id := range shown {
		if diff := cmp.Diff(whole[id], now[id], cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s runs or is shown before it is whole (-whole +now):\n%s", id, diff)
		}
	}
	for id, c := range now {
		if !c.Rows.Session.Arriving() {
			continue
		}
		noted := ""
		done, err := transfer.Rebuild(t.Context(), d, false, func(format string, args ...any) { noted += fmt.Sprintf(format, args...) })
		if err != nil || done.Failed != 1 || !strings.Contains(noted, string(id)+": is not whole") {
			t.Errorf("rebuilt %+v, %v: %s", done, err, noted)
		}
	}
}
