// Package packages knows where the packages of a sandbox come from, how each package
// manager installs them, and how layers of installed packages are named, shared and kept.
//
// Where packages come from is what this machine's own package managers say: the package
// has no addresses of its own.
package packages

import (
	"context"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dormouse-run/dormouse"
)

// Sources is where packages come from.
type Sources struct {
	// Hosts are those that package managers ask.
	Hosts []dormouse.Host
	// Env tells package managers in a sandbox to ask where this machine's do.
	Env []string
}

const (
	// askWithin bounds how long one package manager may take to answer.
	askWithin = 20 * time.Second
	// maxAnswer bounds what it says, and each of its files.
	maxAnswer = 64 << 10
	// maxFiles bounds how many files are read.
	maxFiles = 64
)

// question is what one package manager is asked. One that is not on this machine,
// or does not answer, has no sources.
type question struct {
	argv []string
	// name is the variable that configures the same in a sandbox.
	name string
}

// python prints the index that pip asks, and where that keeps its files.
const python = `
from pip._internal.commands import create_command
print(create_command("download").parser.get_default_values().index_url)
from pip._internal.models.index import PyPI
print("https://" + PyPI.file_storage_domain)
`

// questions are the commands that print URLs. Each has the variable that tells a package
// manager of the first URL, if there is one; the other URLs are only hosts that sandboxes
// must reach.
var questions = []question{
	{[]string{"go", "env", "GOPROXY"}, "GOPROXY"},
	{[]string{"go", "env", "GOSUMDB"}, ""},
	{[]string{"npm", "config", "get", "registry"}, "npm_config_registry"},
	{[]string{"python3", "-c", python}, "PIP_INDEX_URL"},
	{[]string{"gem", "sources", "--list"}, ""},
}

// Look asks the package managers of this machine, all at once, which takes a
// moment. They are given env and nothing else. What it found is logged.
func Look(ctx context.Context, env []string, log *slog.Logger) Sources {
	answers := make([]string, len(questions))
	var asking sync.WaitGroup
	for i, q := range questions {
		asking.Go(func() {
			var err error
			if answers[i], err = ask(ctx, q.argv, env); err != nil {
				log.DebugContext(ctx, "package manager not asked", "command", q.argv[0], "error", err)
			}
		})
	}
	asking.Wait()
	var found finder
	for i, q := range questions {
		found.answer(q.name, answers[i])
	}
	for _, text := range aptFiles("/etc/apt") {
		found.apt(text)
	}
	for _, name := range found.secret {
		log.WarnContext(ctx, "packages come from an address with a password in it, which sandboxes are not told", "setting", name)
	}
	log.InfoContext(ctx, "packages come from", "hosts", found.names)
	return Sources{Hosts: found.hosts, Env: found.env}
}

// ask runs a package manager outside of any project.
func ask(ctx context.Context, argv, env []string) (string, error) {
	program, err := find(argv[0], env)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, argv[1:]...) //nolint:gosec // from a list of our own
	cmd.Args[0] = argv[0]
	cmd.Env = append([]string{}, env...) // nil would be ours
	cmd.Dir = "/"
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	return string(out[:min(len(out), maxAnswer)]), err
}

// find looks for a program where the PATH of env says.
func find(name string, env []string) (string, error) {
	for _, e := range env {
		list, ok := strings.CutPrefix(e, "PATH=")
		if !ok {
			continue
		}
		for _, dir := range filepath.SplitList(list) {
			if path := filepath.Join(dir, name); filepath.IsAbs(dir) {
				if _, err := exec.LookPath(path); err == nil {
					return path, nil
				}
			}
		}
	}
	return "", exec.ErrNotFound
}

// finder collects hosts and variables from the answers.
type finder struct {
	hosts  []dormouse.Host
	names  []string
	env    []string
	secret []string // settings that hold a password
}

// answer takes the words of an answer that are URLs, and a bare name for one. The
// whole first line tells another of the same kind the same.
func (f *finder) answer(name, text string) {
	private := false
	for _, word := range strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" \t\r\n,|", r) }) {
		if !strings.Contains(word, "://") {
			if strings.Contains(word, ".") {
				f.add("https://" + word)
			}
			continue
		}
		private = f.add(word) || private
	}
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	switch {
	case name == "" || line == "" || strings.ContainsAny(line, "\x00\r"):
	case private:
		f.secret = append(f.secret, name)
	default:
		f.env = append(f.env, name+"="+line)
	}
}

// add adds the host of a URL, and reports whether the URL holds more than sandboxes
// may know.
func (f *finder) add(raw string) (private bool) {
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return err != nil
	}
	name := u.Scheme + "://" + u.Host
	if h, err := dormouse.ParseHost(name); err == nil && !slices.Contains(f.names, name) {
		f.hosts, f.names = append(f.hosts, h), append(f.names, name)
	}
	return u.User != nil
}

// aptFiles reads the sources of apt.
func aptFiles(dir string) []string {
	names := []string{filepath.Join(dir, "sources.list")}
	for _, pattern := range []string{"*.list", "*.sources"} {
		found, _ := filepath.Glob(filepath.Join(dir, "sources.list.d", pattern)) // the pattern is our own
		names = append(names, found...)
	}
	var texts []string
	for _, name := range names[:min(len(names), maxFiles)] {
		if text, err := os.ReadFile(name); err == nil && len(text) <= maxAnswer {
			texts = append(texts, string(text))
		}
	}
	return texts
}

// apt takes the URLs of a file of sources, of either kind.
func (f *finder) apt(text string) {
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) == 0 || words[0] != "deb" && !strings.EqualFold(words[0], "URIs:") {
			continue
		}
		for _, word := range words[1:] {
			f.add(word)
		}
	}
}
