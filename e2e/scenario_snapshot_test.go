package e2e

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dormouse-run/dormouse"
)

// listedSnapshot is what these tests read of one.
type listedSnapshot struct {
	ID     string `json:"snapshot"`
	Label  string `json:"label"`
	Reason string `json:"reason"`
	Newest bool   `json:"newest"`
	Depth  int    `json:"depth"`
}

func (w *world) snapshots(id string) []listedSnapshot {
	w.t.Helper()
	var page struct {
		Snapshots []listedSnapshot `json:"snapshots"`
	}
	must(w.t, json.Unmarshal([]byte(w.cli("snapshot", "list", id, "--json")), &page))
	return page.Snapshots
}

// turns has the agent run commands, one in each turn, and waits for a snapshot of
// each.
func (w *world) turns(id string, commands ...string) {
	w.t.Helper()
	for _, command := range commands {
		before := len(w.snapshots(id))
		w.cli("session", "send", id, "$ "+command, "--follow")
		w.until("there is a snapshot of the turn", func() bool { return len(w.snapshots(id)) == before+1 })
	}
}

// asked is how much the model was sent before each of its replies.
func (w *world) asked(id string) (tokens []int) {
	w.t.Helper()
	for line := range strings.Lines(w.cli("session", "events", id, "--json")) {
		var e dormouse.Event
		must(w.t, json.Unmarshal([]byte(line), &e))
		if e.Type != dormouse.SpanModelRequestEnd {
			continue
		}
		var p struct {
			Usage struct {
				Input int `json:"input_tokens"`
			} `json:"model_usage"`
		}
		must(w.t, json.Unmarshal(e.Payload, &p))
		if p.Usage.Input == 0 {
			w.t.Fatalf("a model request without usage: %s", e.Payload)
		}
		tokens = append(tokens, p.Usage.Input)
	}
	return tokens
}

// The story as a person lives it: the agent works, breaks everything, and is taken
// back to before it did.
func TestASessionIsTakenBackByHand(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("layers are made by root")
	}
	t.Parallel()
	w := newWorld(t)
	id := strings.TrimSpace(w.cli("session", "create", "--model", "offline"))
	const first, second, breaks = "echo one >a; mkdir d; echo x >d/x", "echo two >>a", "rm -r a d; seq 1000; echo junk >junk"
	w.turns(id, first, second)
	named := strings.TrimSpace(w.cli("snapshot", "create", id, "--label", "all is well"))
	w.turns(id, breaks)
	sent := w.asked(id)
	all := w.snapshots(id)
	if len(all) != 4 || !all[0].Newest || all[1].ID != named || all[1].Label != "all is well" || all[1].Reason != "asked" || all[3].Reason != "turn" {
		t.Fatalf("listed %+v", all)
	}
	if got := w.cli("exec", id, "ls"); got != "junk\n" {
		t.Fatalf("broken it is %q", got)
	}

	said := w.cli("revert", id)
	if !strings.Contains(said, "$ "+breaks) || !strings.Contains(said, named) {
		t.Errorf("reverting says %q", said)
	}
	whole := func(when string) {
		t.Helper()
		if got := w.cli("exec", id, "ls; cat a d/x"); got != "a\nd\none\ntwo\nx\n" {
			t.Errorf("%s it is %q", when, got)
		}
	}
	whole("reverted")
	w.kill(nil)
	whole("after a crash")
	if left := w.snapshots(id); len(left) != 4 || left[0].Label != "replaced" || left[1].ID != named || !left[1].Newest {
		t.Errorf("left are %+v", left)
	}

	// What was reverted is shown beside the history, and the model is not sent it.
	if log := w.cli("log", id); strings.Contains(log, breaks) || !strings.Contains(log, second) || !strings.Contains(log, "all is well") {
		t.Errorf("the line is\n%s", log)
	}
	if log := w.cli("log", id, "--graph"); !strings.Contains(log, "$ "+breaks+" (reverted)\n|/\n* "+named) {
		t.Errorf("the graph is\n%s", log)
	}
	w.turns(id, breaks)
	again := w.asked(id)
	const notice = 100 // that the sandbox was restarted, at most
	if n := len(sent); sent[n-1] < sent[n-2]+5*notice || len(again) != n+2 || again[n] > sent[n-2]+notice {
		t.Errorf("asked the same again, the model was sent %v, and before %v", again, sent)
	}

	w.compare(id, all[2].ID, named)
	w.exports(id, named)
	for range 2 {
		w.cli("snapshot", "delete", id, named)
	}
	if out, err := w.command("snapshot", "show", id, named).CombinedOutput(); err == nil || !strings.Contains(string(out), "not found") {
		t.Errorf("deleted, it is %v: %s", err, out)
	}
	// Before the last prompt there is an older one now.
	w.cli("snapshot", "restore", id, all[3].ID)
	if got := w.cli("exec", id, "cat a d/x"); got != "one\nx\n" {
		t.Errorf("restored it is %q", got)
	}
	w.cli("snapshot", "prune", id, "--keep", "1")
	if left := w.snapshots(id); len(left) != 2 || left[1].ID != all[3].ID { // which the files lie over
		t.Errorf("pruned, left are %+v", left)
	}
}

// Between any two calls of a turn there is a snapshot, if that was asked for, and the
// conversation up to there goes with it.
func TestEveryCallHasItsSnapshot(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("layers are made by root")
	}
	t.Parallel()
	w := newWorld(t)
	id := strings.TrimSpace(w.cli("session", "create", "--model", "offline", "--snapshots", "call"))
	w.cli("session", "send", id, "$ echo 1 >a; sleep 0.2\n$ cat a\n$ echo 2 >a; echo b >b; sleep 0.2\n$ rm b; sleep 0.2", "--follow")
	w.until("each call that changed something has one", func() bool { return len(w.snapshots(id)) == 3 })
	all := w.snapshots(id)
	for i, want := range []string{"- b\n0 added, 0 changed, 1 removed\n", "~ a\n+ b  2 B\n1 added, 1 changed, 0 removed\n", "+ a  2 B\n1 added, 0 changed, 0 removed\n"} {
		if got := w.cli("snapshot", "diff", id, all[i].ID); got != want || all[i].Reason != "call" {
			t.Errorf("call %d (%s) did %q, not %q", 2-i, all[i].Reason, got, want)
		}
	}
	branch, _, _ := strings.Cut(w.cli("branch", id, "--at", all[1].ID), "\t")
	if got := w.cli("exec", branch, "cat a b"); got != "2\nb\n" {
		t.Errorf("the branch has %q", got)
	}
	if n := strings.Count(w.cli("session", "events", branch), "\tagent.tool_result\t"); n != 3 {
		t.Errorf("the branch knows of %d results", n)
	}
	w.cli("snapshot", "restore", id, all[2].ID, "--history")
	if got := w.cli("session", "send", id, "$ cat a; ls", "--follow"); !strings.Contains(got, "  1\n  a\n") {
		t.Errorf("restored it says %q", got)
	}
}

func (w *world) compare(id, before, now string) {
	w.t.Helper()
	if got := w.cli("snapshot", "diff", id, before, now); got != "0 added, 0 changed, 0 removed\n" {
		w.t.Errorf("between two that are alike: %q", got)
	}
	if got := w.cli("snapshot", "diff", id, before); got != "~ a  8 B, was 4 B\n0 added, 1 changed, 0 removed\n" {
		w.t.Errorf("since the one before: %q", got)
	}
	newest := w.snapshots(id)[0].ID
	const want = "- a\n- d/\n- d/x\n+ junk  5 B\n1 added, 0 changed, 3 removed\n"
	if got := w.cli("snapshot", "diff", id, now, newest); got != want {
		w.t.Errorf("since it was well: %q", got)
	}
}

// exports finds the files of a snapshot in its image.
func (w *world) exports(id, snapshot string) {
	w.t.Helper()
	file := filepath.Join(w.t.TempDir(), "image.tar")
	w.cli("snapshot", "export", id, snapshot, file)
	f, err := os.Open(file)
	must(w.t, err)
	defer func() { _ = f.Close() }()
	held := make(map[string]string)
	for image := tar.NewReader(f); ; {
		h, err := image.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		must(w.t, err)
		if !strings.HasPrefix(h.Name, "blobs/") {
			continue
		}
		layer := tar.NewReader(image)
		for h, err := layer.Next(); err == nil; h, err = layer.Next() { // a blob that is no tar is no layer
			content, err := io.ReadAll(layer)
			must(w.t, err)
			held[h.Name] = string(content)
		}
	}
	if held["a"] != "one\ntwo\n" || held["d/x"] != "x\n" {
		w.t.Errorf("exported %q", held)
	}
}
