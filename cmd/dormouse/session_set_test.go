package main

import (
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/client"
)

func TestSetChangesWhatIsNamedAndNothingElse(t *testing.T) {
	o := newOffice(t)
	id := o.create("--title", "first", "--tag", "b", "--tag", "a", "--metadata", "k=v=w", "--metadata", "l=")
	shown := func() client.Session { return decode[client.Session](t, o.must("session", "show", id, "--json")) }
	if s := shown(); !slices.Equal(s.Tags, []string{"a", "b"}) || s.Metadata["k"] != "v=w" || len(s.Metadata) != 2 {
		t.Errorf("made %+v", s.Row)
	}
	o.must("session", "set", id, "--title", "second", "--metadata", "m=1", "--drop-metadata", "k")
	if s := shown(); s.Title != "second" || len(s.Tags) != 2 || s.Metadata["m"] != "1" || len(s.Metadata) != 2 {
		t.Errorf("set %+v", s.Row)
	}
	o.must("session", "set", id, "--tag", "c")
	if out := o.must("session", "show", id); !strings.Contains(out, "tags      c\n") || !strings.Contains(out, "m = 1") {
		t.Errorf("shown %s", out)
	}
	o.must("session", "set", id, "--no-tags", "--title", "")
	if s := shown(); s.Title != "" || len(s.Tags) != 0 {
		t.Errorf("set %+v", s.Row)
	}
}

func TestListFindsWhatWasSaid(t *testing.T) {
	o := newOffice(t)
	a := o.create("--title", "Fix the build", "--tag", "ci", "--metadata", "repo=dormouse")
	b := o.create("--title", "write docs", "--parent", a)
	o.must("session", "archive", o.create("--title", "old build"))
	for _, c := range []struct {
		flags []string
		want  []string
	}{
		{nil, []string{b, a}},
		{[]string{"--text", "BUILD"}, []string{a}},
		{[]string{"--tag", "ci"}, []string{a}},
		{[]string{"--tag", "ci", "--tag", "other"}, nil},
		{[]string{"--metadata", "repo=dormouse"}, []string{a}},
		{[]string{"--parent", a}, []string{b}},
	} {
		var got []string
		for _, s := range decode[client.Page](t, o.must(append([]string{"session", "list", "--json"}, c.flags...)...)).Sessions {
			got = append(got, string(s.Session))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%v lists %v, want %v", c.flags, got, c.want)
		}
	}
	if out := o.must("session", "list", "--archived", "--text", "build"); strings.Count(out, "\n") != 3 || !strings.Contains(out, "old build") {
		t.Errorf("listed %s", out)
	}
}

func TestDeleteRemovesAndSaysSo(t *testing.T) {
	o := newOffice(t)
	id := o.create()
	if out := o.must("session", "delete", id, "--json"); out != `{"session":"`+id+`","gone":true}`+"\n" {
		t.Errorf("deleted %s", out)
	}
	if _, errs, code := o.run("session", "delete", id, "--yes"); code != exitError || !strings.Contains(errs, "not found") {
		t.Errorf("exit %d: %s", code, errs)
	}
	if out := o.must("session", "delete", o.create()); !strings.HasSuffix(out, " deleted\n") {
		t.Errorf("deleted %s", out)
	}
}

func TestFollowingEndsWhenTheSessionIsDeleted(t *testing.T) {
	o := newOffice(t)
	id := o.create()
	o.must("session", "terminate", id)
	var out safeBuffer
	done := make(chan int)
	go func() {
		after := decode[client.Session](t, o.must("session", "show", id, "--json")).Seq
		done <- run(t.Context(), []string{"--data", o.data, "session", "follow", id, "--after", strconv.FormatUint(after, 10)}, strings.NewReader(""), &out, io.Discard)
	}()
	eventually(t, "somebody follows", func() bool { return o.door.Followers() == 1 })
	o.must("session", "delete", id)
	if code := <-done; code != 0 || out.String() != "— deleted\n" {
		t.Errorf("exit %d: %q", code, out.String())
	}
}

func TestOnlyYesIsYes(t *testing.T) {
	for answer, want := range map[string]bool{
		"y\n": true, "Y\n": true, " yes \n": true, "yes": true, "\n": false, "": false, "n\n": false, "yep\n": false, "\ny\n": false,
	} {
		var out strings.Builder
		if err := confirm(strings.NewReader(answer), &out, "sure? "); (err == nil) != want || out.String() != "sure? " {
			t.Errorf("%q: %v, after %q", answer, err, out.String())
		}
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if isTerminal(null) || isTerminal(strings.NewReader("")) {
		t.Error("nobody is taken for a person")
	}
}

func TestDescriptionsThatContradictThemselvesAreRefused(t *testing.T) {
	o := newOffice(t)
	for _, args := range [][]string{
		{"set", "sesn_x"},
		{"set", "sesn_x", "--metadata", "k"},
		{"set", "sesn_x", "--metadata", "=v"},
		{"set", "sesn_x", "--tag", "a", "--no-tags"},
		{"set", "sesn_x", "--metadata", "k=v", "--drop-metadata", "k"},
		{"create", "--metadata", "k"},
		{"list", "--metadata", "k"},
	} {
		if _, errs, code := o.run(append([]string{"session"}, args...)...); code != exitUsage || !strings.Contains(errs, "Try") {
			t.Errorf("%v: exit %d: %s", args, code, errs)
		}
	}
	if _, errs, code := o.run("session", "set", "sesn_x", "--tag", strings.Repeat("x", 100)); code != exitError || !strings.Contains(errs, "not found") {
		t.Errorf("exit %d: %s", code, errs)
	}
	id := o.create()
	if _, errs, code := o.run("session", "set", id, "--tag", strings.Repeat("x", dormouse.MaxTag+1)); code != exitError || !strings.Contains(errs, "64 bytes") {
		t.Errorf("exit %d: %s", code, errs)
	}
}
