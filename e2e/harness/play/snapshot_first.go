package play

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/internal/sleep"
)

// first copies files in and reverts the first turn, which broke them: the files that people
// had put there must be there again, even if processes were killed meanwhile.
func first(ctx context.Context, p *Play) error {
	files, err := wholeTar()
	if err != nil {
		return err
	}
	if err := p.Repeat(ctx, http.MethodPut, p.Path("/files?path=."), files, nil); err != nil {
		return err
	}
	if err := p.Prompt(ctx, "p0", p.Script(rig.Bash("rm -rf d link; echo x > later"), rig.Say("so it is"))); err != nil {
		return err
	}
	if err := p.Rest(ctx, "continue"); err != nil {
		return err
	}
	for {
		err := p.again(ctx, "revert", map[string]any{"prompt": dormouse.PromptID(p.ID, "p0")})
		if r := rig.Refused(err); r != nil && r.Status == http.StatusConflict { // what the turn ran is still being ended
			if err := sleep.For(ctx, 20*time.Millisecond); err != nil {
				return err
			}
			continue
		}
		if err != nil && !rig.Missing(err) { // then it was reverted before the answer was lost
			return err
		}
		return p.whole(ctx)
	}
}

// wholeTar is what whole looks for.
func wholeTar() (rig.Tar, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	write := func(h tar.Header, text string) error {
		h.Size = int64(len(text))
		err := w.WriteHeader(&h)
		if err == nil {
			_, err = w.Write([]byte(text))
		}
		return err
	}
	err := errors.Join(
		write(tar.Header{Typeflag: tar.TypeDir, Name: "d/", Mode: 0o755}, ""),
		write(tar.Header{Typeflag: tar.TypeReg, Name: "d/kept", Mode: 0o644}, "one\n"),
		write(tar.Header{Typeflag: tar.TypeSymlink, Name: "link", Linkname: "d/kept"}, ""),
		w.Close(),
	)
	return rig.Tar(b.String()), err
}
