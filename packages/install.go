package packages

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"

	"github.com/dormouse-run/dormouse"
)

// Step has one package manager install what it is asked for.
type Step struct {
	Manager  string
	Packages []string
	// Command is for a shell, as root, and succeeds only if all are installed.
	Command string
}

// Steps install packages system-wide. Their caches are in the home directory and in /tmp.
func Steps(p dormouse.Packages) []Step {
	var steps []Step
	for manager, names := range p.All() {
		c := commands[manager]
		steps = append(steps, Step{Manager: manager, Packages: names, Command: "set -e\n" + found(c.program) + c.install(names)})
	}
	return steps
}

// Script is the command with these variables, whose files are on the disk when it ends.
func (s Step) Script(env []string) string {
	var script strings.Builder
	for _, v := range env {
		name, value, _ := strings.Cut(v, "=")
		fmt.Fprintf(&script, "export %s='%s'\n", name, strings.ReplaceAll(value, "'", `'\''`))
	}
	script.WriteString("cd /tmp\n(\n" + s.Command + "\n)\nended=$?\nsync\nexit $ended\n")
	return script.String()
}

// Failed says in words that a step failed, and why.
func (s Step) Failed(why string) string {
	return fmt.Sprintf("%s could not install %s: %s", s.Manager, strings.Join(s.Packages, ", "), why)
}

// ExitMessage is an exit code with the end of the output, on one line.
func ExitMessage(code int, output []byte) string {
	const most, lines = 600, 4
	output = bytes.TrimSpace(output)
	all := strings.Split(string(output[max(0, len(output)-most):]), "\n")
	last := strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, strings.Join(all[max(0, len(all)-lines):], " / "))
	return fmt.Sprintf("exit %d: %s", code, last)
}

// found fails with a message that names the missing packages.
func found(program string) string {
	return "command -v " + program + " >/dev/null || { echo 'there is no " + program + " in this sandbox'; exit 127; }\n"
}

// command is the shell command that installs packages.
type command struct {
	program string
	install func(names []string) string
}

var commands = map[string]command{
	dormouse.ManagerApt:   {"apt-get", apt},
	dormouse.ManagerCargo: {"cargo", func(names []string) string { return "cargo install --root /usr/local -- " + quote(names) }},
	dormouse.ManagerGem:   {"gem", func(names []string) string { return "gem install --no-document -- " + quote(names) }},
	dormouse.ManagerGo:    {"go", golang},
	dormouse.ManagerNpm: {"npm", func(names []string) string {
		return "npm install --global --no-audit --no-fund --no-update-notifier -- " + quote(names)
	}},
	dormouse.ManagerPip: {"python3", func(names []string) string {
		return "export PIP_BREAK_SYSTEM_PACKAGES=1 PIP_ROOT_USER_ACTION=ignore PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1\n" +
			"python3 -m pip install --no-input -- " + quote(names)
	}},
}

// apt starts no services, asks nothing and leaves no lists behind. It has no account
// of its own to fetch as.
func apt(names []string) string {
	return `export DEBIAN_FRONTEND=noninteractive
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
	printf '#!/bin/sh\nexit 101\n' >$policy
	chmod 755 $policy
	trap 'rm -f $policy' EXIT
fi
apt="apt-get -qq -o APT::Sandbox::User=root -o Acquire::http::Pipeline-Depth=0 -o Dpkg::Use-Pty=0"
$apt update
$apt --yes --no-install-recommends install -- ` + quote(names) + `
$apt clean
rm -rf /var/lib/apt/lists/*`
}

// golang installs one after the other: they may be of different modules. One
// without a version is the latest.
func golang(names []string) string {
	var b strings.Builder
	b.WriteString("export GOBIN=/usr/local/bin GOPATH=/tmp/go GOCACHE=/tmp/go-build GOFLAGS=-modcacherw\n")
	for _, name := range names {
		if !strings.Contains(name, "@") {
			name += "@latest"
		}
		b.WriteString("go install -- " + quote([]string{name}) + "\n")
	}
	return b.String()
}

// quote quotes words for a shell. No name of a package has a quote in it.
func quote(names []string) string { return "'" + strings.Join(names, "' '") + "'" }
