package inside

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"unicode/utf8"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/runner"
)

const (
	resultsDir = "results"
	// maxResults is how many long outputs are kept.
	maxResults = 32
)

// saveLongOutput saves an output that is longer than e.Keep to a file.
func (r *Runner) saveLongOutput(id dormouse.OpID, e runner.Exec, res *runner.Result) {
	if e.Keep <= 0 || res.Omitted == 0 && utf8.RuneCount(res.Output) <= e.Keep {
		return
	}
	name := filepath.Join(r.opts.Results, string(id)+".txt")
	if err := r.writeResultFile(name, *res); err != nil {
		r.log.Warn("a long output was not kept", "op", id, "error", err)
		return
	}
	res.File = name
}

func (r *Runner) writeResultFile(name string, res runner.Result) error {
	if err := os.MkdirAll(r.opts.Results, 0o755); err != nil { //nolint:gosec // commands may run as another user and read it
		return err
	}
	r.evictResults()
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|syscall.O_NOFOLLOW, 0o644) //nolint:gosec // as above
	if err != nil {
		return err
	}
	head, tail := res.Output, []byte(nil)
	if res.Omitted > 0 {
		head, tail = head[:min(len(head), runner.KeptHead)], head[min(len(head), runner.KeptHead):]
	}
	_, err = f.Write(head)
	if err == nil && res.Omitted > 0 {
		_, err = fmt.Fprintf(f, "\n[… %d bytes were not kept …]\n%s", res.Omitted, tail)
	}
	if closing := f.Close(); err == nil {
		err = closing
	}
	if err != nil {
		_ = os.Remove(name)
	}
	return err
}

// evictResults removes the oldest files, so that there is room for one more.
func (r *Runner) evictResults() {
	entries, err := os.ReadDir(r.opts.Results)
	if err != nil || len(entries) < maxResults {
		return
	}
	var all []fs.FileInfo
	for _, e := range entries {
		if at, err := e.Info(); err == nil && at.Mode().IsRegular() {
			all = append(all, at)
		}
	}
	slices.SortFunc(all, func(a, b fs.FileInfo) int {
		return cmp.Or(a.ModTime().Compare(b.ModTime()), cmp.Compare(a.Name(), b.Name()))
	})
	for _, at := range all[:max(0, len(all)-maxResults+1)] {
		_ = os.Remove(filepath.Join(r.opts.Results, at.Name()))
	}
}
