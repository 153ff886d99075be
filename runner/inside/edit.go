package inside

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/runner"
)

// maxEdit bounds a file before and after it is edited.
const maxEdit = 32 << 20

// edit replaces a text in a file atomically.
func (r *Runner) edit(id dormouse.OpID, e runner.Edit) runner.Result {
	content, err := r.editable(e.Path)
	if err != nil {
		return runner.Result{Error: err.Error()}
	}
	content, n, err := applyEdit(e, content)
	if err != nil {
		return runner.Result{Error: fmt.Sprintf("%s: %v", e.Path, err)}
	}
	if err := r.writeFile(id, runner.Write{Path: e.Path, Content: content}); err != nil {
		return runner.Result{Error: err.Error()}
	}
	return runner.Result{Size: int64(len(content)), Count: n}
}

func (r *Runner) editable(name string) ([]byte, error) {
	path, err := r.resolve(name)
	if err != nil {
		return nil, err
	}
	f, at, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	content, err := io.ReadAll(io.LimitReader(f, maxEdit+1))
	switch {
	case err != nil:
		return nil, err
	case len(content) > maxEdit:
		return nil, fmt.Errorf("%s has %d bytes; a file that is edited may have %d", name, max(at.Size(), int64(len(content))), maxEdit)
	}
	return content, nil
}

// applyEdit returns the edited content and the number of replacements.
func applyEdit(e runner.Edit, content []byte) ([]byte, int, error) {
	was, now := e.Old, e.New
	if hasCRLF(content) {
		was, now = toCRLF(was), toCRLF(now)
	}
	n := 0
	if len(was) > 0 {
		n = bytes.Count(content, was)
	}
	switch {
	case len(was) == 0:
		return nil, 0, errors.New("the text to replace is empty")
	case bytes.Equal(was, now):
		return nil, 0, errors.New("the new text is the old one")
	case n == 0:
		return nil, 0, errors.New("the text to replace was not found; nothing was changed")
	case n > 1 && !e.All:
		return nil, 0, fmt.Errorf("the text to replace occurs %d times, and only one was to be replaced; nothing was changed", n)
	case int64(len(content))+int64(n)*int64(len(now)-len(was)) > maxEdit:
		return nil, 0, fmt.Errorf("it would have more than %d bytes; nothing was changed", maxEdit)
	}
	return bytes.ReplaceAll(content, was, now), n, nil
}

// hasCRLF reports whether every line of a file ends with CRLF.
func hasCRLF(content []byte) bool {
	n := bytes.Count(content, []byte("\n"))
	return n > 0 && n == bytes.Count(content, []byte("\r\n"))
}

// toCRLF converts LF to CRLF, unless the text contains a CR.
func toCRLF(text []byte) []byte {
	if bytes.IndexByte(text, '\r') >= 0 {
		return text
	}
	return bytes.ReplaceAll(text, []byte("\n"), []byte("\r\n"))
}
