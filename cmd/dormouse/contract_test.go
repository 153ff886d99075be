package main

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/door"
	"github.com/dormouse-run/dormouse/door/rest"
	v1 "github.com/dormouse-run/dormouse/door/v1"
	"github.com/dormouse-run/dormouse/internal/contract"
	"github.com/dormouse-run/dormouse/session/law"
	"github.com/dormouse-run/dormouse/store"
	"github.com/dormouse-run/dormouse/store/archive"
)

// What others rely on is as the version before had it. Additions are written to the files
// with -update; removals must be written there by hand. The columns of the databases,
// what servers say to each other and what each route takes and answers are checked in the
// same way beside the stores and the doors.
func TestWhatOthersRelyOnIsAsItWas(t *testing.T) {
	for name, lines := range map[string]func(*testing.T) []string{
		"commands": commandLines,
		"config":   configLines,
		"routes":   routeLines,
		"errors":   errorLines,
		"events":   eventLines,
		"state":    func(*testing.T) []string { return stateLines() },
		"archive":  func(*testing.T) []string { return archiveLines() },
	} {
		t.Run(name, func(t *testing.T) { promised(name).Check(t, lines(t)) })
	}
}

func promised(name string) contract.File {
	return contract.File{Path: filepath.Join("testdata", "contract", name+".txt")}
}

// Every struct with names for JSON, whatever it is for: requests, answers, records on
// disk, frames. And every word that stands in one.
func TestEveryShapeOfJSONIsAsItWas(t *testing.T) {
	source, err := contract.Load(t.Context(), ".", "../dormouse-runner")
	if err != nil {
		t.Fatal(err)
	}
	shapes := promised("shapes")
	shapes.Grows = contract.Wider
	shapes.Check(t, source.Shapes())
	words := source.Words()
	promised("words").Check(t, words)
	for _, word := range words {
		kind := dormouse.EventType(word)
		if _, ok := payloads[kind]; !ok && kind.Version() <= dormouse.LogVersion {
			t.Errorf("say in payloads what is in %s", kind)
		}
	}
}

func commandLines(*testing.T) []string {
	var lines []string
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		line := c.CommandPath() + strings.TrimPrefix(c.Use, c.Name())
		if len(c.Aliases) > 0 {
			line += " or " + strings.Join(c.Aliases, ", ")
		}
		lines = append(lines, line)
		for _, flags := range []*pflag.FlagSet{c.LocalNonPersistentFlags(), c.PersistentFlags()} {
			flags.VisitAll(func(f *pflag.Flag) { lines = append(lines, c.CommandPath()+" "+flagLine(f)) })
		}
		for _, below := range c.Commands() {
			walk(below)
		}
	}
	began := false
	walk(newRoot(&began))
	return lines
}

func flagLine(f *pflag.Flag) string {
	line := "--" + f.Name
	if f.Shorthand != "" {
		line += " -" + f.Shorthand
	}
	line += " " + f.Value.Type()
	if f.DefValue != "" && f.Name != "data" { // which is in the home of the user
		line += " = " + f.DefValue
	}
	return line
}

// configLines are the settings of a server: each has a key in the file and a variable.
func configLines(*testing.T) []string {
	began := false
	root := newRoot(&began)
	serve, _, err := root.Find([]string{"serve"})
	if err != nil {
		return []string{err.Error()}
	}
	var lines []string
	serve.Flags().VisitAll(func(f *pflag.Flag) {
		lines = append(lines, strings.ReplaceAll(f.Name, "-", "_")+" "+environment+strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_")))
	})
	return append(lines, "file "+configFile)
}

// routeLines are the ways in for clients. Those of other servers are held in door/peer.
func routeLines(*testing.T) []string {
	quiet := slog.New(slog.DiscardHandler)
	var lines []string
	for _, r := range slices.Concat(rest.New(rest.Config{Logger: quiet}).Routes(), v1.New(v1.Config{Logger: quiet}).Routes()) {
		open := ""
		if r.Open {
			open = " for everyone"
		}
		if len(r.Methods) == 0 {
			lines = append(lines, r.Pattern+" is nothing")
		}
		for method := range r.Methods {
			lines = append(lines, method+" "+r.Pattern+open)
		}
	}
	return lines
}

// errorLines are how errors are told.
func errorLines(*testing.T) []string {
	var lines []string
	for _, err := range []error{
		dormouse.ErrNotFound, dormouse.ErrInvalid, dormouse.ErrTooLarge, dormouse.ErrConflict, dormouse.ErrTerminated, dormouse.ErrLeaseLost,
		dormouse.ErrUnknownOutcome, dormouse.ErrDamaged, dormouse.ErrNewerLog, dormouse.ErrFull, dormouse.ErrUnavailable, dormouse.ErrNoVaultKey, dormouse.ErrBehind,
		dormouse.ErrClosing, fmt.Errorf("anything else"),
	} {
		r := door.ReplyTo(err)
		lines = append(lines, fmt.Sprintf("%d %s %s", r.Status, r.Type, r.Message))
	}
	return lines
}

// stateLines are the fields of a cached fold, which another program may have cached.
func stateLines() []string {
	lines := contract.Fields(reflect.TypeFor[law.State]())
	return append(lines, fmt.Sprintf("version %d", law.CacheState(law.State{}).Version))
}

// archiveLines are the fields of what an archive is made of.
func archiveLines() []string {
	var lines []string
	for of, t := range map[string]reflect.Type{
		"version of a document": reflect.TypeFor[archive.Version](),
		"session":               reflect.TypeFor[archive.Session](),
		"lost blob":             reflect.TypeFor[archive.Lost](),
		"event":                 reflect.TypeFor[dormouse.Event](),
		"chunk":                 reflect.TypeFor[store.Chunk](),
		"end":                   reflect.TypeFor[archive.End](),
		"total":                 reflect.TypeFor[archive.Total](),
	} {
		for _, field := range contract.Fields(t) {
			lines = append(lines, of+": "+field)
		}
	}
	return lines
}
