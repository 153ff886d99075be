package v1_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the programs of the older SDK again")

// TestBothGenerationsPlayTheSame holds package sdk1 to be package sdk2 with the
// SDK of the generation before.
func TestBothGenerationsPlayTheSame(t *testing.T) {
	files, err := filepath.Glob("sdk2/*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("found %v: %v", files, err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, code, _ := strings.Cut(string(b), "package sdk2\n")
		want := "// Code generated from package sdk2. DO NOT EDIT.\n\npackage sdk1\n" + strings.ReplaceAll(code, "anthropic-sdk-go/v2", "anthropic-sdk-go")
		if filepath.Base(file) == "sdk.go" {
			want = strings.Replace(want, "\npackage sdk1", "\n// Package sdk1 runs programs with the official Go SDK of the generation before.\npackage sdk1", 1)
		}
		other := filepath.Join("sdk1", filepath.Base(file))
		if *update {
			if err := os.WriteFile(other, []byte(want), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(other)
		if err != nil || string(got) != want {
			t.Errorf("%s is not as %s says; go test ./e2e/v1 -run Generations -update writes it again (%v)", other, file, err)
		}
	}
}
