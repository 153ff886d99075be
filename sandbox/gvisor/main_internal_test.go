//go:build linux

package gvisor

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestKernelIsToldOfItsLimits(t *testing.T) {
	bundle := t.TempDir()
	boot := []string{"runsc-sandbox", "boot", "--bundle=" + bundle, "--total-memory", "1", "sbx_a"}
	told := func(extra ...string) []string {
		return append(append(append([]string{}, boot[:5]...), extra...), "sbx_a")
	}
	for name, c := range map[string]struct {
		config string
		args   []string
		cpus   int
		want   []string
	}{
		"both":              {`{"linux":{"resources":{"memory":{"limit":1024},"cpu":{"quota":250000}}}}`, boot, 8, told("--total-memory=1024", "--total-host-memory=1024", "--cpu-num=3")},
		"never one CPU":     {`{"linux":{"resources":{"cpu":{"quota":50000}}}}`, boot, 8, told("--cpu-num=2")},
		"never more CPUs":   {`{"linux":{"resources":{"cpu":{"quota":900000}}}}`, boot, 4, told("--cpu-num=4")},
		"no limits":         {`{"linux":{}}`, boot, 4, boot},
		"nothing readable":  {`{`, boot, 4, boot},
		"it is no kernel":   {`{"linux":{"resources":{"memory":{"limit":1024}}}}`, []string{"runsc-gofer", "gofer", "--bundle=" + bundle, "x"}, 4, []string{"runsc-gofer", "gofer", "--bundle=" + bundle, "x"}},
		"no bundle is told": {`{}`, []string{"runsc-sandbox", "boot", "sbx_a"}, 4, []string{"runsc-sandbox", "boot", "sbx_a"}},
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(filepath.Join(bundle, "config.json"), []byte(c.config), 0o600); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, withLimits(c.args, c.cpus)); diff != "" {
				t.Errorf("arguments (-want +got):\n%s", diff)
			}
		})
	}
}
