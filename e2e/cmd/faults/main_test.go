package main

import (
	"strings"
	"testing"
)

func TestTallyCountsCasesAndWhatDidNotRun(t *testing.T) {
	const ran = `{"Action":"run","Test":"TestB01"}
{"Action":"pass","Test":"TestB01"}
{"Action":"run","Test":"TestB02"}
{"Action":"run","Test":"TestB02/one"}
{"Action":"run","Test":"TestB02/two"}
{"Action":"pass","Test":"TestB02/one"}
{"Action":"pass","Test":"TestB02/two"}
{"Action":"pass","Test":"TestB02"}
`
	for name, c := range map[string]struct {
		events        string
		cases, failed int
		says          string
	}{
		"all well":               {ran, 3, 0, "pass      0s  B02/two"},
		"nothing":                {"", 0, 0, ""},
		"a part fails":           {strings.Replace(ran, `"pass","Test":"TestB02/two"`, `"fail","Test":"TestB02/two"`, 1), 3, 1, "fail"},
		"a part and so the rest": {strings.NewReplacer(`"pass","Test":"TestB02/two"`, `"fail","Test":"TestB02/two"`, `"pass","Test":"TestB02"`, `"fail","Test":"TestB02"`).Replace(ran), 3, 1, "fail"},
		"only the whole fails":   {strings.Replace(ran, `"pass","Test":"TestB02"`, `"fail","Test":"TestB02"`, 1), 4, 1, "fail"},
		"skipped":                {strings.Replace(ran, `"pass","Test":"TestB01"`, `"skip","Test":"TestB01"`, 1), 3, 1, "skip"},
		"cut short":              {strings.Replace(ran, `{"Action":"pass","Test":"TestB01"}`+"\n", "", 1), 3, 1, "B02/one"},
		"does not build":         {"# a package\nit does not build\n", 0, 0, "it does not build"},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			tally := newTally(&out)
			if err := tally.read(strings.NewReader(c.events)); err != nil {
				t.Fatal(err)
			}
			if cases, failed := tally.count(); cases != c.cases || failed != c.failed || !strings.Contains(out.String(), c.says) {
				t.Errorf("%d cases, %d failed, want %d and %d; said was %q", cases, failed, c.cases, c.failed, out.String())
			}
		})
	}
}
