//go:build !windows

package main

import (
	"os"
	"strings"
	"unsafe"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// mayHoldSecrets are the flags whose values are URLs, which may have a password.
var mayHoldSecrets = []string{storeName, "anthropic-url", "scripted-url", "s3-endpoint", "blobs"}

// exposedFlags are the flags that were given on the command line with a password in their
// value, where every user of the machine could read it.
type exposedFlags []string

// hideFlags overwrites those values in what the system shows of this process, which
// is where our arguments are.
func hideFlags(f *pflag.FlagSet) (found exposedFlags) {
	for _, name := range mayHoldSecrets {
		flag := f.Lookup(name)
		if flag == nil || !flag.Changed {
			continue
		}
		for _, value := range valuesOf(name, os.Args) {
			if len(secrets(value)) == 0 {
				continue
			}
			_ = flag.Value.Set(strings.Clone(value)) // it was set to the same before
			overwrite(value)
			found = append(found, name)
		}
	}
	return found
}

// valuesOf are the values that a flag has on a command line.
func valuesOf(name string, args []string) (values []string) {
	for i, arg := range args {
		if v, ok := strings.CutPrefix(arg, "--"+name+"="); ok {
			values = append(values, v)
		}
		if arg == "--"+name && i+1 < len(args) {
			values = append(values, args[i+1])
		}
	}
	return values
}

// overwrite blanks an argument, or the end of one, in place. The strings of os.Args are
// the memory that the system shows as our command line, so a copy is made of each that is
// still needed.
func overwrite(argument string) {
	for _, arg := range os.Args {
		if len(argument) > 0 && strings.HasSuffix(arg, argument) {
			at := unsafe.Slice(unsafe.StringData(arg), len(arg)) //nolint:gosec // the memory is ours, writable, and no constant
			for i := len(arg) - len(argument); i < len(arg); i++ {
				at[i] = 'x'
			}
		}
	}
}

// warn logs what to do instead.
func (e exposedFlags) warn(cmd *cobra.Command) {
	c := config{LogLevel: "warn"}
	if f := cmd.Flags().Lookup("log-format"); f != nil {
		c.LogFormat = f.Value.String()
	}
	log := newLogger(c, cmd.ErrOrStderr())
	for _, name := range e {
		instead := "set " + environment + strings.ToUpper(strings.ReplaceAll(name, "-", "_")) + ", or " + strings.ReplaceAll(name, "-", "_") + " in config.json in the data directory"
		if name == storeName {
			instead = "put the URL in a file that only the server can read and name it with --" + storeFileName + ", or " + instead
		}
		log.WarnContext(cmd.Context(), "a password was on the command line, where every user of this machine could read it", "flag", "--"+name, "instead", instead)
	}
}
