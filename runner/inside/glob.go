package inside

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse/runner"
)

// maxFound bounds the files that a glob names.
const maxFound = 1000

// found is a file that a glob found.
type found struct {
	path string
	at   time.Time
}

// glob lists the files that match a pattern, the newest first.
func (r *Runner) glob(ctx context.Context, g runner.Glob) (runner.Result, error) {
	p, err := parseGlob(g.Pattern)
	if err != nil {
		return runner.Result{}, err
	}
	begin := g.Path
	switch {
	case filepath.IsAbs(p.base):
		begin = p.base
	case p.base != "":
		begin = filepath.Join(g.Path, p.base)
	}
	from, err := r.searchRootOf(begin)
	switch {
	case err != nil && p.base != "" && isMissing(err):
		return runner.Result{}, nil // nothing matches
	case err != nil:
		return runner.Result{}, err
	case from.file:
		return runner.Result{}, fmt.Errorf("%s is not a directory", begin)
	}
	var newest []found
	n := 0
	err = from.walk(ctx, p.depth, func(e walkEntry) error {
		if !p.fits.MatchString(e.rel) {
			return nil
		}
		var at unix.Stat_t
		if err := unix.Fstatat(e.dir, e.Name(), &at, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return nil //nolint:nilerr // it was removed meanwhile
		}
		n++
		if newest = append(newest, found{from.displayPath(e.rel), time.Unix(at.Mtim.Unix())}); len(newest) >= 2*maxFound {
			newest = sorted(newest)
		}
		return nil
	})
	note, err := stopNote(err)
	if err != nil {
		return runner.Result{}, err
	}
	res := runner.Result{Count: n, Note: note}
	shown := 0
	for _, f := range sorted(newest) {
		if len(res.Output)+len(f.path)+1 > runner.MaxText {
			break
		}
		res.Output = append(append(res.Output, f.path...), '\n')
		shown++
	}
	if shown < n && note == "" {
		res.Note = fmt.Sprintf("%d files fit; these are the newest %d", n, shown)
	}
	return res, nil
}

// sorted returns the newest files, sorted.
func sorted(all []found) []found {
	slices.SortFunc(all, func(a, b found) int { return cmp.Or(b.at.Compare(a.at), cmp.Compare(a.path, b.path)) })
	return all[:min(len(all), maxFound)]
}
