// Package contract runs the tests that the official Go SDK has for its own
// resources, which only require an answer, against a server of ours.
package contract

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/dormouse-run/dormouse/e2e/v1/schema"
)

// module is the SDK whose tests are run.
const module = "github.com/anthropics/anthropic-sdk-go/v2"

// resources name the files of the tests of the family.
var resources = []string{
	"agent", "agentversion", "environment", "environmentwork", "session", "sessionevent", "sessionresource", "sessionthread",
	"sessionthreadevent", "model", "vault", "vaultcredential", "memorystore", "memorystorememory", "memorystorememoryversion",
	"file", "skill", "skillversion", "deployment", "deploymentrun", "dream", "tunnel", "tunnelcertificate",
}

// Build makes a program of the SDK's tests in dir, unless it is there already.
func Build(ctx context.Context, dir string) (program string, err error) {
	from, err := schema.ModuleDir(ctx, module)
	if err != nil {
		return "", err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return "", err
	}
	dir = filepath.Join(dir, filepath.Base(from)) // the version is part of the name
	program = filepath.Join(dir, "contract.test")
	if _, err := os.Stat(program); err == nil {
		return program, nil
	}
	if err := os.RemoveAll(dir); err != nil {
		return "", err
	}
	if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
		return "", fmt.Errorf("copy the SDK: %w", err)
	}
	tests, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return "", err
	}
	for _, t := range tests {
		if !wanted(filepath.Base(t)) {
			if err := os.Remove(t); err != nil {
				return "", err
			}
		}
	}
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-o", program, ".")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the SDK's tests: %w\n%s", err, text)
	}
	return program, nil
}

func wanted(file string) bool {
	name, ok := strings.CutPrefix(strings.TrimSuffix(file, "_test.go"), "beta")
	return ok && slices.Contains(resources, name)
}

// Outcome is what became of one test: why it failed, or nothing.
type Outcome struct {
	Test, Why string
}

// Passed reports whether the test got its answer.
func (o Outcome) Passed() bool { return o.Why == "" }

func (o Outcome) String() string { return o.Test + ": " + o.Why }

// Run runs the program's tests against a URL, one after the other. Those of
// downloads ask a server of their own, and say nothing about another.
func Run(ctx context.Context, program, url string) ([]Outcome, error) {
	cmd := exec.CommandContext(ctx, program, "-test.run", "^TestBeta", "-test.skip", "Download", "-test.v", "-test.parallel", "1", "-test.count", "1")
	cmd.Dir = filepath.Dir(program)
	cmd.Env = append(os.Environ(), "TEST_API_BASE_URL="+url)
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return nil, fmt.Errorf("run the SDK's tests: %w", err)
	}
	outcomes := read(out)
	if len(outcomes) == 0 {
		return nil, fmt.Errorf("the SDK's tests said nothing: %w: %s", err, out)
	}
	return outcomes, nil
}

var (
	verdict = regexp.MustCompile(`^--- (PASS|FAIL|SKIP): (\S+)`)
	failure = regexp.MustCompile(`err should be nil: .*?(\d{3} [A-Za-z -]+?)(?: \(.*?\))? (\{.*\})`)
	other   = regexp.MustCompile(`err should be nil: (.*)`)
	id      = regexp.MustCompile(`\b(agent|env|sesn|sevt|sthr|req|file|vlt|memstore|skill|depl)_[0-9A-Za-z]+`)
)

// read reads what the tests said.
func read(out []byte) []Outcome {
	var all []Outcome
	why := ""
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		line := lines.Text()
		if strings.HasPrefix(line, "=== RUN") {
			why = ""
		}
		if w := reason(line); w != "" {
			why = w
		}
		found := verdict.FindStringSubmatch(line)
		switch {
		case found == nil:
		case found[1] == "PASS":
			all = append(all, Outcome{Test: found[2]})
		case found[1] == "SKIP":
			all = append(all, Outcome{Test: found[2], Why: "skipped"})
		case why == "":
			all = append(all, Outcome{Test: found[2], Why: "it did not say why"})
		default:
			all = append(all, Outcome{Test: found[2], Why: why})
		}
	}
	return all
}

// reason is why a request was refused, without what differs from run to run.
func reason(line string) string {
	if found := failure.FindStringSubmatch(line); found != nil {
		var e struct {
			Error struct{ Type, Message string } `json:"error"`
		}
		if json.Unmarshal([]byte(found[2]), &e) == nil && e.Error.Type != "" {
			return id.ReplaceAllString(fmt.Sprintf("%s: %s: %s", found[1], e.Error.Type, e.Error.Message), "$1…")
		}
	}
	if found := other.FindStringSubmatch(line); found != nil {
		return id.ReplaceAllString(found[1], "$1…")
	}
	return ""
}
