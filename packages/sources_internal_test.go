package packages

import (
	"slices"
	"strings"
	"testing"
)

func TestSourcesAreWhatPackageManagersSay(t *testing.T) {
	var f finder
	f.answer("GOPROXY", "https://proxy.example|https://second.example/go,direct\n")
	f.answer("", "sum.example+033de0ae+Ac4zctda0e5eza+HJyk9SxEdh+s3Ux18htTTAD8OuAn8\n")
	f.answer("", "sums.example\n")
	f.answer("npm_config_registry", "https://user:secret@npm.example/path/\n")
	f.answer("PIP_INDEX_URL", "http://pip.example:8080/simple\nhttps://files.example\n")
	f.answer("off", "off\n")
	f.answer("nothing", "")
	f.apt("# deb http://no.example x main\ndeb [signed-by=/x arch=amd64] http://deb.example/debian stable main\ndeb-src http://src.example x main\n")
	f.apt("Types: deb\nURIs: https://deb.example/debian mirror+file:/etc/x file:/y\n  http://odd.example\nSuites: http://suites.example\n")
	want := []string{
		"https://proxy.example", "https://second.example", "https://sums.example", "https://npm.example", "http://pip.example:8080", "https://files.example",
		"http://deb.example", "https://deb.example",
	}
	if !slices.Equal(f.names, want) {
		t.Errorf("hosts are %q", f.names)
	}
	if want := []string{"GOPROXY=https://proxy.example|https://second.example/go,direct", "PIP_INDEX_URL=http://pip.example:8080/simple", "off=off"}; !slices.Equal(f.env, want) {
		t.Errorf("sandboxes are told %q", f.env)
	}
	if !slices.Equal(f.secret, []string{"npm_config_registry"}) || strings.Contains(strings.Join(f.names, ""), "secret") {
		t.Errorf("secrets are in %q", f.secret)
	}
}

func FuzzSources(f *testing.F) {
	f.Add("https://a.example,direct", "deb http://b.example x")
	f.Add("https://u:p@a.example\nx", "URIs: https://[::1]:3 ://")
	f.Fuzz(func(t *testing.T, answer, apt string) {
		var s finder
		s.answer("NAME", answer)
		s.apt(apt)
		if len(s.hosts) != len(s.names) {
			t.Error("a host has no name")
		}
		for _, e := range s.env {
			if strings.ContainsAny(e, "\x00\n\r") {
				t.Errorf("a variable of more than one line: %q", e)
			}
		}
		for _, n := range s.names {
			if strings.Contains(n, "@") {
				t.Errorf("a password: %q", n)
			}
		}
	})
}
