package main

import (
	"bytes"
	"io"
	"strings"
	"testing"
)

func TestSandboxesAreEndedOnlyWithoutAServer(t *testing.T) {
	data := t.TempDir()
	s := startServer(t, data)
	end := func() (int, string) {
		var errs bytes.Buffer
		code := run(t.Context(), []string{"sandboxes", "end", "--data", data}, strings.NewReader(""), io.Discard, &errs)
		return code, errs.String()
	}
	if code, text := end(); code != exitError || !strings.Contains(text, data) {
		t.Errorf("beside a server it ended with %d: %s", code, text)
	}
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	if code, text := end(); code != 0 {
		t.Errorf("it ended with %d: %s", code, text)
	}
}
