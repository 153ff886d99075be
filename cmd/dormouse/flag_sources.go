package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// environment is the prefix of the variables that set flags: DORMOUSE_LISTEN
// sets --listen.
const environment = "DORMOUSE_"

// fill sets the flags that the command line did not from the environment.
func fill(cmd *cobra.Command) error {
	return fillFrom(cmd.Flags(), "the environment", func(f *pflag.Flag) (string, bool) {
		return os.LookupEnv(environment + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_")))
	})
}

func fillFrom(flags *pflag.FlagSet, source string, look func(*pflag.Flag) (string, bool)) (err error) {
	// Two flags say where the database is. If one was given, neither is taken from
	// another source.
	stored := flags.Changed(storeName) || flags.Changed(storeFileName)
	flags.VisitAll(func(f *pflag.Flag) {
		if stored && (f.Name == storeName || f.Name == storeFileName) {
			return
		}
		v, ok := look(f)
		if f.Changed || !ok || v == "" || f.Name == "help" || err != nil {
			return
		}
		if e := flags.Set(f.Name, v); e != nil {
			err = fmt.Errorf("%s in %s: %w", f.Name, source, e)
		}
	})
	return err
}

// defaultData is where people expect programs to keep things.
func defaultData() string {
	if dir := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "dormouse")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, ".local", "share", "dormouse")
}
