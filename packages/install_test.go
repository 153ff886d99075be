package packages_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/packages"
)

// Each step is run with a package manager that prints its arguments.
func TestAStepHandsItsPackagesOnAsTheyAre(t *testing.T) {
	all := dormouse.Packages{
		Apt: []string{"jq", "libc6:amd64"}, Cargo: []string{"ripgrep@14"}, Gem: []string{"rails:7"}, Go: []string{"example.com/x/cmd/y", "example.com/z@v1.2.3"},
		Npm: []string{"@types/node@^20", "a"}, Pip: []string{"a>=1,<2", "b[c]~=3", "d!=1.*"},
	}
	if err := all.Validate(); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"apt": "--yes --no-install-recommends install -- jq libc6:amd64\n", "cargo": "-- ripgrep@14\n", "gem": "-- rails:7\n",
		"go": "install -- example.com/x/cmd/y@latest\ninstall -- example.com/z@v1.2.3\n", "npm": "-- @types/node@^20 a\n", "pip": "-m pip install --no-input -- a>=1,<2 b[c]~=3 d!=1.*\n",
	}
	var order []string
	for _, s := range packages.Steps(all) {
		order = append(order, s.Manager)
		script := `for p in apt-get cargo gem go npm python3; do eval "$p() { echo \"\$*\"; }"; done` + "\n"
		script += strings.NewReplacer("apt-get -qq", "echo", "/usr/sbin/policy-rc.d", t.TempDir()+"/policy", "rm -rf /var/lib/apt/lists/*", "").Replace(s.Command)
		out, err := exec.CommandContext(t.Context(), "bash", "-c", script).CombinedOutput()
		if err != nil || !strings.Contains(string(out), want[s.Manager]) {
			t.Errorf("%s: %v: %s", s.Manager, err, out)
		}
	}
	if got := strings.Join(order, " "); got != "apt cargo gem go npm pip" {
		t.Errorf("installed in the order %s", got)
	}
}

func TestAStepSaysWhichPackageManagerThereIsNot(t *testing.T) {
	s := packages.Steps(dormouse.Packages{Npm: []string{"a"}})[0]
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", s.Command)
	cmd.Env = []string{"PATH=/nowhere"}
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "there is no npm in this sandbox") {
		t.Errorf("%v: %s", err, out)
	}
}
