package dormouse_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/dormouse-run/dormouse"
)

func TestPackagesAreNamedAsTheirManagersDo(t *testing.T) {
	good := dormouse.Packages{
		Apt: []string{"jq", "libc6:amd64", "g++", "curl=7.88.1-10+deb12u12", "jq/bookworm"}, Cargo: []string{"ripgrep@14.1.0"}, Gem: []string{"rails:7.0.1"},
		Go: []string{"golang.org/x/tools/cmd/goimports@latest"}, Npm: []string{"@types/node@^20.1.0", "typescript"}, Pip: []string{"pandas==2.2.0", "uvicorn[standard]>=0.3,<1", "a~=1.0", "b!=2"},
	}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	var order []string
	for manager := range good.All() {
		order = append(order, manager)
	}
	if !slices.Equal(order, []string{"apt", "cargo", "gem", "go", "npm", "pip"}) {
		t.Errorf("installed in the order %q", order)
	}
	for _, name := range []string{"", "-r", "--index-url=x", "a b", "a;b", "$(a)", "`a`", "a\n", "a'b", "../a", "./a", "/etc/passwd", "a/../b", "git+https://example.com/x", "a@https://example.com/x", "jq-", "é", strings.Repeat("a", dormouse.MaxPackage+1)} {
		if err := (dormouse.Packages{Pip: []string{"ok", name}}).Validate(); !errors.Is(err, dormouse.ErrInvalid) || !strings.HasPrefix(err.Error(), "pip[1]") {
			t.Errorf("%q: %v", name, err)
		}
	}
	var many dormouse.Packages
	for i := range dormouse.MaxPackages + 1 {
		var err error
		if many, err = many.With([]string{"apt", "npm"}[i%2], fmt.Sprint("p", i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := many.Validate(); !errors.Is(err, dormouse.ErrInvalid) {
		t.Errorf("too many: %v", err)
	}
	if _, err := many.With("brew", "x"); !errors.Is(err, dormouse.ErrInvalid) {
		t.Errorf("brew: %v", err)
	}
}

func TestAnEnvironmentSaysWhatItsNetworkIsFor(t *testing.T) {
	for body, says := range map[string]string{
		`{"network":"limited"}`: "",
		`{"network":"limited","hosts":["example.com","*.example.org"]}`:                            "",
		`{"network":"limited","package_managers":true,"packages":{"pip":["x"]}}`:                   "",
		`{"network":"on","packages":{"npm":["x"],"apt":[]}}`:                                       "",
		`{"packages":{"npm":["x"]}}`:                                                               "",
		`{"hosts":["example.com"]}`:                                                                "hosts are for a network that is limited",
		`{"network":"off","hosts":["example.com"]}`:                                                "hosts are for a network that is limited",
		`{"network":"on","package_managers":true}`:                                                 "package_managers is for a network that is limited",
		`{"network":"limited","packages":{"pip":["x"]}}`:                                           "packages need package_managers",
		`{"network":"off","packages":{"pip":["x"]}}`:                                               "packages need a network",
		`{"network":"limited","hosts":["a.example","*"]}`:                                          "hosts[1]",
		`{"network":"limited","hosts":["a.b"` + strings.Repeat(`,"a.b"`, dormouse.MaxHosts) + `]}`: "there are 101 hosts",
		`{"packages":{"gem":["-x"]}}`:                                                              "packages.gem[0]",
		`{"network":"some"}`:                                                                       "on, limited or off",
	} {
		var e dormouse.Environment
		if err := json.Unmarshal([]byte(body), &e); err != nil {
			t.Fatal(err)
		}
		err := e.Validate()
		if says == "" && err != nil || says != "" && (!errors.Is(err, dormouse.ErrInvalid) || !strings.Contains(err.Error(), says)) {
			t.Errorf("%s: %v, want %q", body, err, says)
		}
		raw, err := json.Marshal(e)
		var again dormouse.Environment
		if err != nil || json.Unmarshal(raw, &again) != nil || !again.Equal(e) || e.IsZero() {
			t.Errorf("%s became %s", body, raw)
		}
	}
	if raw, _ := json.Marshal(dormouse.Environment{}); string(raw) != "{}" {
		t.Errorf("nothing is %s", raw)
	}
}
