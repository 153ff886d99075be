package contract

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/dormouse-run/dormouse"

// arrowsFile is what each package of ours imports of ours, without tests.
var arrowsFile = filepath.Join("..", "..", "docs", "imports.txt")

// Packages import what docs/imports.txt says and nothing else. An arrow is drawn there
// by hand; with -update all are, which is for packages that move.
func TestPackagesImportWhatIsDrawn(t *testing.T) {
	have := imports(t)
	for _, p := range slices.Sorted(maps.Keys(have)) {
		t.Logf("%s: %s", p, strings.Join(have[p], " "))
	}
	if *update {
		var b strings.Builder
		for _, p := range slices.Sorted(maps.Keys(have)) {
			b.WriteString(strings.TrimSpace(p+": "+strings.Join(have[p], " ")) + "\n")
		}
		if err := os.WriteFile(arrowsFile, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	drawn := drawnArrows(t)
	for p, all := range have {
		for _, to := range all {
			if !slices.Contains(drawn[p], to) {
				t.Errorf("%s imports %s, which %s does not have", p, to, arrowsFile)
			}
		}
	}
	for p, all := range drawn {
		if _, ok := have[p]; !ok {
			t.Errorf("%s has %s, and there is no such package", arrowsFile, p)
		}
		for _, to := range all {
			if !slices.Contains(have[p], to) {
				t.Errorf("%s has an arrow from %s to %s, and there is none", arrowsFile, p, to)
			}
		}
	}
}

func drawnArrows(t *testing.T) map[string][]string {
	t.Helper()
	b, err := os.ReadFile(arrowsFile)
	if err != nil {
		t.Fatal(err)
	}
	drawn := make(map[string][]string)
	for line := range strings.Lines(string(b)) {
		p, to, _ := strings.Cut(line, ":")
		drawn[p] = strings.Fields(to)
	}
	return drawn
}

// imports is what packages import of ours, with the files of every build. The root
// package is called "dormouse".
func imports(t *testing.T) map[string][]string {
	t.Helper()
	have := make(map[string][]string)
	for _, tags := range []string{"", "crash,faults"} {
		all, err := List(t.Context(), "-e", "-tags="+tags, module+"/...")
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range all {
			name := short(p.ImportPath)
			have[name] = append(have[name], nil...)
			for _, to := range p.Imports {
				if to == module || strings.HasPrefix(to, module+"/") {
					have[name] = append(have[name], short(to))
				}
			}
		}
	}
	for p, all := range have {
		slices.Sort(all)
		have[p] = slices.Compact(all)
	}
	return have
}

func short(path string) string {
	if path == module {
		return "dormouse"
	}
	return strings.TrimPrefix(path, module+"/")
}
