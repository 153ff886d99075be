package mutants

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/dormouse-run/dormouse/e2e/harness/rig"
)

// goTest is a test of a package that must fail, alone.
type goTest struct {
	pkg  string // from the root of the module
	name string // as it is reported, with its subtest if only that is meant
}

func (g goTest) String() string { return g.pkg + " " + g.name }

// pattern is the name for -test.run.
func (g goTest) pattern() string {
	parts := strings.Split(g.name, "/")
	for i, part := range parts {
		parts[i] = "^" + regexp.QuoteMeta(part) + "$"
	}
	return strings.Join(parts, "/")
}

// compile builds the tests of the package over other sources. What cannot be
// compiled is an error, and never a test that fails.
func (g goTest) compile(ctx context.Context, root, out string, over rig.Overlay) error {
	args := []string{"test", "-c", "-vet=off", "-o", out}
	if over != nil {
		path := out + ".overlay.json"
		if err := over.Write(path); err != nil {
			return err
		}
		args = append(args, "-overlay", path)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "./"+g.pkg)...)
	cmd.Dir = root
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the tests of %s: %w\n%s", g.pkg, err, text)
	}
	return nil
}

// run runs the test in a binary that compile has built and returns what it found
// wrong, nothing if it passed.
func (g goTest) run(ctx context.Context, root, binary string, env ...string) (string, error) {
	cmd := exec.CommandContext(ctx, binary, "-test.run", g.pattern(), "-test.v", "-test.count=1", "-test.timeout=10m")
	cmd.Dir = filepath.Join(root, g.pkg)
	cmd.Env = append(os.Environ(), env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if err != nil && cmd.ProcessState == nil || ctx.Err() != nil {
		return "", errors.Join(context.Cause(ctx), err)
	}
	return g.verdict(out.String(), err == nil)
}

// said is a line that a test wrote itself.
var said = regexp.MustCompile(`^\s+\w+\.go:\d+: (.*)`)

// verdict reads what the test binary wrote. Only the test itself can fail or pass:
// one that was not run, was skipped or hung says nothing.
func (g goTest) verdict(out string, ok bool) (string, error) {
	var passed, failed, skipped bool
	text := ""
	for line := range strings.Lines(out) {
		if m := said.FindStringSubmatch(line); m != nil && text == "" {
			text = strings.TrimSpace(m[1])
		}
		how, rest, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "--- "), ": ")
		if name, _, _ := strings.Cut(rest, " "); name != g.name {
			continue
		}
		passed, failed, skipped = passed || how == "PASS", failed || how == "FAIL", skipped || how == "SKIP"
	}
	switch {
	case failed && !ok:
		return g.name + ": " + cmp.Or(text, "it failed"), nil
	case skipped:
		return "", fmt.Errorf("%s is skipped here, so nobody notices; it needs root, and /dev/fuse", g)
	case passed && ok:
		return "", nil
	}
	return "", fmt.Errorf("%s neither passed nor failed:\n%s", g, out)
}
