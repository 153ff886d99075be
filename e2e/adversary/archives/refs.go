//go:build linux

package archives

import (
	"context"
	"fmt"
	"strings"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/snapshot"
	"github.com/dormouse-run/dormouse/snapshot/snapshottest"
)

func refs() []Case {
	cases := named("ref", "a ref that is none", snapshottest.HostileRefs(), func(ctx context.Context, w *World, raw string) (string, error) {
		return w.readRef(ctx, raw, dormouse.ErrInvalid)
	})
	key, other := snapshot.Key{1}, snapshot.Key{2}
	mine := string(snapshot.Mint(key, "sesn_1", "snap_1").Bytes())
	forged := map[string]string{
		"of another session":  strings.Replace(mine, "sesn_1", "sesn_2", 1),
		"of another snapshot": strings.Replace(mine, "snap_1", "snap_2", 1),
		"of another key":      string(snapshot.Mint(other, "sesn_1", "snap_1").Bytes()),
		"of nobody":           snapshottest.Outer(snapshottest.Inner("")),
	}
	cases = append(cases, named("ref", "a ref that somebody else made", forged, func(_ context.Context, _ *World, raw string) (string, error) {
		r, err := snapshot.ParseRef([]byte(raw))
		if err != nil {
			return "", err
		}
		return said(r.Check(key), nil, dormouse.ErrNotFound)
	})...)
	return append(cases, Case{"ref-too-long", "a ref of more than 64 KiB", func(ctx context.Context, w *World) (string, error) {
		return w.readRef(ctx, snapshottest.Outer(snapshottest.Inner(`,"x":"`+strings.Repeat("x", snapshot.MaxRef)+`"`)), dormouse.ErrTooLarge)
	}}, Case{"ref-very-deep", "a ref of brackets", func(ctx context.Context, w *World) (string, error) {
		return w.readRef(ctx, snapshottest.Outer(strings.Repeat("[", 50_000)), dormouse.ErrInvalid)
	}})
}

func (w *World) readRef(ctx context.Context, raw string, want error) (string, error) {
	var r snapshot.Ref
	got, breach := w.guard(ctx, little, func(context.Context) (err error) {
		r, err = snapshot.ParseRef([]byte(raw))
		return err
	})
	if got == nil && breach == nil {
		breach = fmt.Errorf("it was read as %s of %s", r.Snapshot, r.Session)
	}
	return said(got, breach, want)
}
