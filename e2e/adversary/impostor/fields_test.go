//go:build linux

package impostor_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"

	"github.com/dormouse-run/dormouse/e2e/adversary/impostor"
	"github.com/dormouse-run/dormouse/runner"
)

func names(fields []impostor.Field) (all []string) {
	for _, f := range fields {
		all = append(all, f.String())
	}
	return all
}

func TestEveryListOfAFrameIsFound(t *testing.T) {
	found := names(impostor.Repeated())
	t.Log(found)
	for _, want := range []string{"ops", "terminals", "terminals[].command", "ports", "victims", "stream.terminal.env"} {
		if !slices.Contains(found, want) {
			t.Errorf("%s is not among %q", want, found)
		}
	}
	for _, want := range []string{"detail", "hello.secret", "report.result.error", "ports[].command", "output"} {
		if !slices.Contains(names(impostor.Texts()), want) {
			t.Errorf("%s is not among the texts %q", want, names(impostor.Texts()))
		}
	}
}

func TestAFilledFieldIsAFrameOfTheProtocol(t *testing.T) {
	for _, f := range append(impostor.Repeated(), impostor.Texts()...) {
		text := f.JSON(runner.KindReply, 7, f.Filled(1000))
		if !json.Valid(text) {
			t.Errorf("%s is no JSON: %s", f, text)
		}
		if got := len(f.Filled(1000)); got < 900 || got > 1000 {
			t.Errorf("%s has %d bytes of 1000", f, got)
		}
	}
	ports := impostor.Repeated()[slices.Index(names(impostor.Repeated()), "ports")]
	f, err := runner.ReadFrame(bytes.NewReader(impostor.Framed(runner.KindReply, ports.JSON(runner.KindReply, 7, ports.Filled(100)))), runner.FromRunner())
	if err != nil || f.Kind != runner.KindReply || f.ID != 7 || len(f.Ports) < 30 {
		t.Errorf("it is read as %+v, %v", f, err)
	}
}
