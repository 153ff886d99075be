// Package node runs the official TypeScript SDK, in both its generations, each
// pinned by a lock file.
package node

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/dormouse-run/dormouse/e2e/v1/stage"
)

//go:embed programs.mjs old/*.json new/*.json
var files embed.FS

// Generations names those of the SDK: the last of the old one, and the present.
func Generations() []string { return []string{"old", "new"} }

// Outcome is what became of one program.
type Outcome struct {
	Program, Why string
}

// Passed reports whether the program got what it wanted.
func (o Outcome) Passed() bool { return o.Why == "" }

func (o Outcome) String() string {
	if o.Passed() {
		return o.Program + " ok"
	}
	return o.Program + ": " + o.Why
}

// Play installs a generation in dir, unless it is there, and runs the programs:
// all of them, if none is named.
func Play(ctx context.Context, generation, dir string, s stage.Stage, programs ...string) ([]Outcome, error) {
	if err := install(ctx, generation, dir); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "node", append([]string{"programs.mjs", s.URL, s.Key, s.Name}, programs...)...)
	cmd.Dir = dir
	out, err := cmd.Output()
	outcomes := read(string(out))
	var exit *exec.ExitError
	if errors.As(err, &exit) && len(outcomes) > 0 {
		err = nil // it told which failed
	}
	if err != nil {
		return nil, fmt.Errorf("run the programs of the %s generation: %w: %s", generation, err, out)
	}
	return outcomes, nil
}

// install puts the SDK and the programs into dir.
func install(ctx context.Context, generation, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	fresh := false
	for from, to := range map[string]string{
		"programs.mjs": "programs.mjs", generation + "/package.json": "package.json", generation + "/package-lock.json": "package-lock.json",
	} {
		b, err := files.ReadFile(from)
		if err != nil {
			return err
		}
		at := filepath.Join(dir, to)
		was, err := os.ReadFile(at)
		if err == nil && bytes.Equal(was, b) {
			continue
		}
		fresh = fresh || to == "package-lock.json"
		if err := os.WriteFile(at, b, 0o600); err != nil {
			return err
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "node_modules", "@anthropic-ai", "sdk")); err == nil && !fresh {
		return nil
	}
	cmd := exec.CommandContext(ctx, "npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts")
	cmd.Dir = dir
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("install the %s generation: %w\n%s", generation, err, text)
	}
	return nil
}

// read reads what the programs said.
func read(out string) []Outcome {
	var all []Outcome
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		if program, ok := strings.CutPrefix(line, "ok "); ok {
			all = append(all, Outcome{Program: program})
		} else if rest, ok := strings.CutPrefix(line, "not ok "); ok {
			program, why, _ := strings.Cut(rest, ": ")
			all = append(all, Outcome{Program: program, Why: why})
		}
	}
	return all
}
