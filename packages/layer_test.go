package packages_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/packages"
)

func TestLayersAreSharedWhileTheyAreFresh(t *testing.T) {
	s := packages.Store{Dir: t.TempDir()}
	key, err := packages.Key("root", dormouse.Packages{Pip: []string{"a"}})
	if err != nil {
		t.Fatal(err)
	}
	l, err := s.New(key)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Begin("sbx_builder"); err != nil {
		t.Fatal(err)
	}
	if left, err := s.Unfinished(key); err != nil || len(left) != 1 || left[0].Builder() != "sbx_builder" {
		t.Errorf("unfinished are %v, %v", left, err)
	}
	if s.Use(l.Name) != nil || s.Current(key) != nil {
		t.Error("a layer without a manifest is used")
	}
	if err := l.Seal(packages.Manifest{}); err != nil {
		t.Fatal(err)
	}
	if left, err := s.Unfinished(key); err != nil || len(left) != 0 {
		t.Errorf("unfinished are %v, %v", left, err)
	}
	if err := s.SetCurrent(l); err != nil {
		t.Fatal(err)
	}
	if got := s.Current(key); got == nil || got.Name != l.Name {
		t.Errorf("current is %v", got)
	}
	age := func(name string, by time.Duration) {
		t.Helper()
		at := time.Now().Add(-by)
		if err := os.Chtimes(name, at, at); err != nil {
			t.Fatal(err)
		}
	}
	age(filepath.Join(l.Dir, "stock.json"), 25*time.Hour)
	if unused, err := s.Unused(key, map[string]bool{l.Name: true}); err != nil || len(unused) != 0 {
		t.Errorf("unused are %v, %v, though a session has it", unused, err)
	}
	if unused, err := s.Unused(key, nil); err != nil || len(unused) != 1 {
		t.Errorf("unused are %v, %v", unused, err)
	}
	if s.Use(l.Name) == nil {
		t.Error("a complete layer is not used")
	}
	if unused, err := s.Unused(key, nil); err != nil || len(unused) != 0 {
		t.Errorf("unused are %v, %v, right after one was used", unused, err)
	}
	age(filepath.Join(s.KeyDir(key), "current"), 8*24*time.Hour)
	if got := s.Current(key); got != nil {
		t.Errorf("a layer of last week is current: %v", got)
	}
}

func TestMissingPackagesAreTriedAgainAfterAnHour(t *testing.T) {
	s := packages.Store{Dir: t.TempDir()}
	l, err := s.New("key")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Begin("sbx_builder"); err != nil {
		t.Fatal(err)
	}
	if err := l.Seal(packages.Manifest{Missing: "a"}); err != nil {
		t.Fatal(err)
	}
	if m := s.Use(l.Name); m == nil || m.Missing != "a" {
		t.Errorf("used is %+v", m)
	}
	at := time.Now().Add(-2 * time.Hour)
	if err := os.Chtimes(filepath.Join(l.Dir, "stock.json"), at, at); err != nil {
		t.Fatal(err)
	}
	if m := s.Use(l.Name); m != nil {
		t.Errorf("used is %+v", m)
	}
}

// Keys are names on the disk: sessions find the layers that older servers have made.
func TestKeyStaysTheSame(t *testing.T) {
	key, err := packages.Key("sha256:1\n/root\nhost\n[\"PATH=/bin\"]", dormouse.Packages{Apt: []string{"git"}})
	if err != nil || key != "ad6ca33eafa4a495689167b304fdc684" {
		t.Errorf("the key is %q, %v", key, err)
	}
}

func TestNamesThatLeadElsewhereAreRefused(t *testing.T) {
	s := packages.Store{Dir: t.TempDir()}
	for _, name := range []string{"", "key", "key/", "/id", "../id", "key/../..", "key/a/b", "key/\x00"} {
		if l, err := s.Layer(name); err == nil {
			t.Errorf("%q is %v", name, l)
		}
	}
}
