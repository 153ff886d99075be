//go:build linux

package gvisor

import (
	"os"
	"strings"

	"github.com/google/subcommands"
	"gvisor.dev/gvisor/runsc/cli"
	"gvisor.dev/gvisor/runsc/cmd"
	"gvisor.dev/gvisor/runsc/cmd/sentry/sentrycmd"
	"gvisor.dev/gvisor/runsc/cmd/util"
)

// Main is what this program does when gVisor has started it as a kernel or as a
// file server: it then does not return. A program that makes sandboxes must call
// it before anything else.
func Main() {
	// The kernel starts itself once more under the name it found itself by.
	if name := os.Args[0]; !strings.HasPrefix(name, "runsc") && name != "/proc/self/exe" {
		return
	}
	cli.Run(nil, map[util.SubCommand]string{
		new(sentrycmd.Boot):   "",
		new(cmd.Gofer):        "",
		new(sentrycmd.Umount): "",
	}, []subcommands.Command{})
}
