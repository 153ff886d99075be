package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/dormouse-run/dormouse"
)

func TestHostsAndPackagesAreAskedFor(t *testing.T) {
	for args, want := range map[string]dormouse.Environment{
		"": {},
		"--allow-host example.com --allow-host *.example.org": {Network: dormouse.NetworkLimited, Hosts: []string{"example.com", "*.example.org"}},
		"--package-managers --packages pip:a>=1,<2 --packages npm:@b/c": {
			Network: dormouse.NetworkLimited, PackageManagers: true, Packages: dormouse.Packages{Npm: []string{"@b/c"}, Pip: []string{"a>=1,<2"}},
		},
		"--network on --packages apt:jq": {Network: dormouse.NetworkOn, Packages: dormouse.Packages{Apt: []string{"jq"}}},
	} {
		var e environmentFlags
		f := pflag.NewFlagSet("", pflag.ContinueOnError)
		e.flags(f)
		if err := f.Parse(strings.Fields(args)); err != nil {
			t.Fatal(err)
		}
		got, err := e.request()
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", args, err, diff)
		}
	}
	if _, err := (&environmentFlags{packages: []string{"brew:x"}}).request(); err == nil || !strings.Contains(err.Error(), "brew") {
		t.Errorf("brew: %v", err)
	}
}
