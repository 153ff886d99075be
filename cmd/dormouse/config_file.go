//go:build !windows

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dormouse-run/dormouse/internal/closedjson"
)

// configFile is the only file of a data directory that people write.
const configFile = "config.json"

// fillFromFile sets the flags of a server that neither the command line nor the
// environment did, from the file config.json in the data directory.
func fillFromFile(cmd *cobra.Command) error {
	data, err := cmd.Flags().GetString("data")
	if err != nil || cmd.Flags().Lookup("listen") == nil { // only a server has a file
		return err
	}
	path := filepath.Join(data, configFile)
	file, err := readConfig(path)
	if err != nil {
		return err
	}
	err = fillFrom(cmd.Flags(), path, func(f *pflag.Flag) (string, bool) {
		v, ok := file[strings.ReplaceAll(f.Name, "-", "_")]
		return v, ok && f.Name != "data"
	})
	for key := range file {
		if key == "data" || cmd.Flags().Lookup(strings.ReplaceAll(key, "_", "-")) == nil {
			return fmt.Errorf("%s: there is no setting %q", path, key)
		}
	}
	return err
}

// readConfig reads a flat JSON object whose names are those of the flags, with _ for -. A
// name that is given twice is an error. A file that does not exist counts as empty.
func readConfig(path string) (map[string]string, error) {
	at, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = checkOwner(filepath.Dir(path), at)
	}
	var b []byte
	if err == nil {
		b, err = os.ReadFile(path)
	}
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	file, err := closedjson.Members(b)
	if err != nil {
		return nil, fmt.Errorf("read configuration %s: %w", path, err)
	}
	values := make(map[string]string, len(file))
	for key, raw := range file {
		var v any
		if err := closedjson.Decode(raw, &v); err != nil {
			return nil, fmt.Errorf("read configuration %s: %q: %w", path, key, err)
		}
		switch v := v.(type) {
		case string:
			values[key] = v
		case []any:
			list := make([]string, 0, len(v))
			for _, item := range v {
				list = append(list, fmt.Sprint(item))
			}
			values[key] = strings.Join(list, ",")
		default:
			return nil, fmt.Errorf("read configuration %s: %q must be a string or a list of strings", path, key)
		}
	}
	return values, nil
}
