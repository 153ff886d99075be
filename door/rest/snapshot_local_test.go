//go:build linux

package rest_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/door/rest"
	"github.com/dormouse-run/dormouse/internal/connlimit"
	"github.com/dormouse-run/dormouse/sandbox/local/localtest"
	"github.com/dormouse-run/dormouse/session"
	"github.com/dormouse-run/dormouse/snapshot"
)

// newServerWithSnapshots is a server whose sessions have snapshots.
func newServerWithSnapshots(t *testing.T) *testServer {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("layers are made by root")
	}
	driver := localtest.Open(t)
	layers := filepath.Join(t.TempDir(), "snapshots")
	h := newServerOf(t, driver, func(c *session.Config) {
		var err error
		c.Snapshots, err = snapshot.Open(snapshot.Options{Dir: layers, Blobs: c.Blobs})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := c.Snapshots.Close(); err != nil {
				t.Error(err)
			}
		})
		c.Refs = snapshot.Key{1}
	})
	h.layers = layers
	return h
}

// does has the agent run a command, and returns the prompt.
func (h *testServer) does(path, command string) string {
	h.t.Helper()
	return h.ask(path, fmt.Sprintf(`SCRIPT[{"tool":"bash","input":{"command":%q}},{"text":"done"}]`, command))
}

func (h *testServer) listSnapshots(path, query string) rest.Snapshots {
	h.t.Helper()
	var all rest.Snapshots
	h.call(http.MethodGet, path+"/snapshots"+query, "", http.StatusOK, &all)
	return all
}

// waitSnapshots waits until there are so many snapshots.
func (h *testServer) waitSnapshots(path string, n int) []rest.Snapshot {
	h.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		all := h.listSnapshots(path, "")
		if all.Total == n {
			return all.Snapshots
		}
		if time.Now().After(deadline) {
			h.t.Fatalf("there are %d snapshots, not %d", all.Total, n)
		}
	}
}

func (h *testServer) files(path string) string {
	h.t.Helper()
	var e rest.Exec
	h.call(http.MethodPost, path+"/execs", `{"command":"grep -rH . * | sort"}`, http.StatusOK, &e)
	return e.Output
}

// What adds nothing has no layer, however often it is asked for and whatever the files
// lie over.
func TestASnapshotOfNothingNewHasNoLayerOfItsOwn(t *testing.T) {
	h := newServerWithSnapshots(t)
	path := h.create(`{}`)
	h.does(path, "echo one >a; mkdir d; sleep 0.2") // what was just written is looked at again
	first := h.waitSnapshots(path, 1)[0]
	alike := func(when string) {
		t.Helper()
		var s rest.Snapshot
		h.call(http.MethodPost, path+"/snapshots", `{}`, http.StatusOK, &s)
		if s.Depth != first.Depth || s.Size != first.Size {
			t.Errorf("%s it has %d layers of %d bytes, not %d of %d", when, s.Depth, s.Size, first.Depth, first.Size)
		}
	}
	alike("at once")
	alike("again")
	h.call(http.MethodPost, path+"/restore", `{"snapshot":"`+string(first.ID)+`"}`, http.StatusOK, nil)
	h.files(path)
	alike("restored")
	// A root of its own is something new.
	h.call(http.MethodPost, path+"/execs", `{"command":"chmod 750 ."}`, http.StatusOK, nil)
	var s rest.Snapshot
	h.call(http.MethodPost, path+"/snapshots", `{}`, http.StatusOK, &s)
	if s.Depth != first.Depth+1 {
		t.Errorf("with another root it has %d layers", s.Depth)
	}
}

func TestSnapshotsAreTakenListedComparedAndGoneBackTo(t *testing.T) {
	h := newServerWithSnapshots(t)
	path := h.create(`{}`)
	h.does(path, "echo one >a; mkdir d; echo x >d/x")
	first := h.waitSnapshots(path, 1)[0]
	if first.Reason != dormouse.SnapshotOfTurn || !first.Newest || first.Bytes != 6 || first.Depth != 1 || first.Layers != nil || first.Taken.IsZero() {
		t.Errorf("taken %+v", first)
	}
	broke := h.does(path, "echo two >>a; rm -r d; echo b >b")
	h.waitSnapshots(path, 2)

	var asked, again rest.Snapshot
	h.call(http.MethodPost, path+"/snapshots", `{"id":"mine","label":"broken <it>"}`, http.StatusOK, &asked)
	h.call(http.MethodPost, path+"/snapshots", `{"id":"mine","label":"other"}`, http.StatusOK, &again)
	if diff := cmp.Diff(asked, again); diff != "" {
		t.Errorf("asked twice it is another:\n%s", diff)
	}
	if asked.Label != "broken <it>" || asked.Reason != dormouse.SnapshotAsked || len(asked.Layers) == 0 {
		t.Errorf("asked for %+v", asked)
	}
	ref, err := snapshot.ParseRef(asked.Ref)
	if err != nil || ref.Check(snapshot.Key{1}) != nil || ref.Snapshot != asked.ID || !strings.HasSuffix(path, string(ref.Session)) {
		t.Errorf("its ref is %s: %v", asked.Ref, err)
	}
	page := h.listSnapshots(path, "?limit=2")
	if page.Total != 3 || len(page.Snapshots) != 2 || page.Snapshots[0].ID != asked.ID || page.Next != page.Snapshots[1].ID {
		t.Errorf("the first page is %+v", page)
	}
	page = h.listSnapshots(path, "?limit=1000&after="+string(page.Next))
	if page.Total != 3 || len(page.Snapshots) != 1 || page.Snapshots[0].ID != first.ID || page.Next != "" {
		t.Errorf("the next page is %+v", page)
	}

	var diff rest.Diff
	h.call(http.MethodGet, path+"/snapshots/"+string(first.ID)+"/diff?to="+string(asked.ID), "", http.StatusOK, &diff)
	want := rest.Diff{From: first.ID, To: asked.ID, Difference: session.Difference{Added: 1, Changed: 1, Removed: 2, Changes: []session.Change{
		{Path: "a", What: snapshot.Changed, Kind: "file", Was: 4, Size: 8},
		{Path: "b", What: snapshot.Added, Kind: "file", Size: 2},
		{Path: "d", What: snapshot.Removed, Kind: "directory"},
		{Path: "d/x", What: snapshot.Removed, Kind: "file", Was: 2},
	}}}
	if d := cmp.Diff(want, diff); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	diff = rest.Diff{}
	h.call(http.MethodGet, path+"/snapshots/"+string(first.ID)+"/diff", "", http.StatusOK, &diff)
	if diff.From != "" || diff.To != first.ID || diff.Added != 3 {
		t.Errorf("since nothing: %+v", diff)
	}

	diff = rest.Diff{}
	h.call(http.MethodGet, path+"/snapshots/"+string(asked.ID)+"/diff", "", http.StatusOK, &diff)
	if diff.From != asked.Parent || diff.From == "" || diff.To != asked.ID {
		t.Errorf("since the one before: %+v", diff)
	}

	// A branch is compared with what it is of.
	var branch session.Branched
	h.call(http.MethodPost, path+"/branch", `{"snapshot":"`+string(first.ID)+`"}`, http.StatusCreated, &branch)
	if branch.Processes {
		t.Error("what runs was taken along")
	}
	diff = rest.Diff{}
	h.call(http.MethodGet, path+"/snapshots/"+string(asked.ID)+"/diff?with="+string(branch.Session), "", http.StatusOK, &diff)
	if diff.From != asked.ID || diff.To != first.ID || diff.With != branch.Session || diff.Added != 2 || diff.Changed != 1 || diff.Removed != 1 {
		t.Errorf("with its branch: %+v", diff)
	}
	h.refuses(h.request(http.MethodPost, path+"/branch", strings.NewReader(`{"processes":true}`)), http.StatusConflict, "cannot be taken along")

	// Back with the files alone, and forth.
	var back rest.Restored
	h.call(http.MethodPost, path+"/restore", `{"snapshot":"`+string(first.ID)+`"}`, http.StatusOK, &back)
	if back.Snapshot != first.ID || back.Workspace != 1 || back.History {
		t.Errorf("restored %+v", back)
	}
	if got := h.files(path); got != "a:one\nd/x:x\n" {
		t.Errorf("restored\n%s", got)
	}
	h.call(http.MethodPost, path+"/restore", `{"snapshot":"`+string(asked.ID)+`"}`, http.StatusOK, nil)
	if got := h.files(path); got != "a:one\na:two\nb:b\n" {
		t.Errorf("restored\n%s", got)
	}

	// Back with the conversation.
	h.call(http.MethodPost, path+"/revert", `{"prompt":"`+broke+`"}`, http.StatusOK, &back)
	if back.Snapshot != first.ID || !back.History {
		t.Errorf("reverted %+v", back)
	}
	if got := h.files(path); got != "a:one\nd/x:x\n" {
		t.Errorf("reverted\n%s", got)
	}
	if all := h.listSnapshots(path, ""); all.Total != 2 || all.Snapshots[1].ID != first.ID || !all.Snapshots[1].Newest || all.Snapshots[0].ID != back.Replaced {
		t.Errorf("left are %+v", all)
	}
	h.refuses(h.request(http.MethodPost, path+"/revert", strings.NewReader(`{"prompt":"`+broke+`"}`)), http.StatusNotFound, "has not been taken up")
}

// Create, copy in, prompt, revert: what people do first.
func TestWhatWasCopiedInBeforeTheFirstTurnIsThereAfterItsRevert(t *testing.T) {
	h := newServerWithSnapshots(t)
	path := h.create(`{"warm":true}`)
	put := h.request(http.MethodPut, path+"/files?path=.", bytes.NewReader(archive(t, map[string]string{"mine": "own"})))
	put.Header.Set("Content-Type", "application/x-tar")
	if status, body := h.do(put); status/100 != 2 {
		t.Fatalf("copied in: %d %s", status, body)
	}
	first := h.does(path, "rm mine; echo made >made")
	points := h.waitSnapshots(path, 2)
	if points[1].Reason != dormouse.SnapshotBefore || points[0].Reason != dormouse.SnapshotOfTurn {
		t.Errorf("taken for %s and %s", points[1].Reason, points[0].Reason)
	}
	var back rest.Restored
	h.call(http.MethodPost, path+"/revert", `{"prompt":"`+first+`"}`, http.StatusOK, &back)
	if got := h.files(path); got != "mine:own\n" {
		t.Errorf("reverted: %q", got)
	}
	h.call(http.MethodPost, path+"/restore", `{"snapshot":"`+string(back.Replaced)+`"}`, http.StatusOK, &back)
	if got := h.files(path); got != "made:made\n" {
		t.Errorf("came back: %q", got)
	}

	// Where there were no files, there are none again.
	path = h.create(`{}`)
	first = h.does(path, "echo made >made")
	h.waitSnapshots(path, 1)
	back = rest.Restored{}
	h.call(http.MethodPost, path+"/revert", `{"prompt":"`+first+`"}`, http.StatusOK, &back)
	if got := h.files(path); got != "grep: *: No such file or directory\n" || back.Snapshot != "" || back.Replaced == "" {
		t.Errorf("reverted to %q, %+v", got, back)
	}
}

func TestASessionAtWorkIsNotTakenBack(t *testing.T) {
	h := newServerWithSnapshots(t)
	path := h.create(`{}`)
	h.does(path, "echo one >a")
	first := h.waitSnapshots(path, 1)[0]
	h.call(http.MethodPost, path+"/prompts", `{"content":"SCRIPT[{\"tool\":\"bash\",\"input\":{\"command\":\"sleep 1000\"}}]"}`, http.StatusAccepted, nil)
	h.until(path, dormouse.PhaseRunning)
	h.refuses(h.request(http.MethodPost, path+"/restore", strings.NewReader(`{"snapshot":"`+string(first.ID)+`"}`)), http.StatusConflict, "interrupt it first")

	// Its files can be looked at all the same.
	var midway rest.Snapshot
	h.call(http.MethodPost, path+"/snapshots", "", http.StatusOK, &midway)
	if !midway.Midway {
		t.Errorf("taken %+v", midway)
	}
	h.call(http.MethodPost, path+"/interrupt", "", http.StatusOK, nil)
	h.rested(path)
	h.refuses(h.request(http.MethodPost, path+"/restore", strings.NewReader(`{"snapshot":"`+string(midway.ID)+`","history":true}`)),
		http.StatusConflict, "no conversation goes with it")
}

func TestSnapshotsAreDeletedAndPruned(t *testing.T) {
	h := newServerWithSnapshots(t)
	path := h.create(`{}`)
	h.does(path, "echo one >a")
	h.waitSnapshots(path, 1)
	for range 3 {
		h.call(http.MethodPost, path+"/snapshots", `{}`, http.StatusOK, nil)
	}
	all := h.waitSnapshots(path, 4)
	for range 2 {
		h.call(http.MethodDelete, path+"/snapshots/"+string(all[1].ID), "", http.StatusNoContent, nil)
	}
	var would, gone rest.Pruned
	h.call(http.MethodPost, path+"/snapshots/prune", `{"keep":2,"dry_run":true}`, http.StatusOK, &would)
	if h.listSnapshots(path, "").Total != 3 || !slices.Equal(would.Snapshots, []dormouse.SnapshotID{all[3].ID}) {
		t.Errorf("would prune %+v", would)
	}
	h.call(http.MethodPost, path+"/snapshots/prune", `{"keep":2}`, http.StatusOK, &gone)
	if !slices.Equal(would.Snapshots, gone.Snapshots) {
		t.Errorf("pruned %+v", gone)
	}
	h.call(http.MethodPost, path+"/snapshots/prune", `{"older_than":"1ns"}`, http.StatusOK, &gone)
	if left := h.listSnapshots(path, ""); left.Total != 1 || left.Snapshots[0].ID != all[0].ID {
		t.Errorf("left are %+v", left)
	}
	h.refuses(h.request(http.MethodGet, path+"/snapshots/"+string(all[1].ID), nil), http.StatusNotFound, string(all[1].ID))
	if got := h.files(path); got != "a:one\n" {
		t.Errorf("the files are\n%s", got)
	}
}

func TestASnapshotIsExportedAsAnImage(t *testing.T) {
	h := newServerWithSnapshots(t)
	path := h.create(`{}`)
	h.does(path, "echo one >a; mkdir d; echo x >d/x")
	first := path + "/snapshots/" + string(h.waitSnapshots(path, 1)[0].ID)
	h.refuses(h.request(http.MethodGet, first+"/export?name=UPPER%20CASE", nil), http.StatusBadRequest, "")
	status, b := h.do(h.request(http.MethodGet, first+"/export?name=ws:1", nil))
	if status != http.StatusOK {
		t.Fatalf("%d %s", status, b)
	}
	files := make(map[string]string)
	eachFile(t, b, func(name string, content []byte) {
		files[name] = string(content)
		if strings.HasPrefix(name, "blobs/") && content[0] != '{' {
			eachFile(t, content, func(name string, content []byte) { files["layer:"+name] = string(content) })
		}
	})
	if files["layer:a"] != "one\n" || files["layer:d/x"] != "x\n" || !strings.Contains(files["manifest.json"], `"ws:1"`) {
		t.Errorf("exported %q", files)
	}
}

func eachFile(t *testing.T, b []byte, do func(name string, content []byte)) {
	t.Helper()
	for r := tar.NewReader(bytes.NewReader(b)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			do(h.Name, content)
		}
	}
}

// The request waits while its client leaves; what comes then is not begun.
func TestARequestWhoseClientHasLeftTakesNoSnapshot(t *testing.T) {
	h := newServerWithSnapshots(t)
	path := h.create(`{}`)
	h.does(path, "echo one >a")
	h.waitSnapshots(path, 1)
	arrived, goOn, over := make(chan struct{}), make(chan struct{}), make(chan struct{})
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		<-goOn
		h.door.ServeHTTP(w, r)
		over <- struct{}{}
	}))
	l := connlimit.New(10)
	s.Listener = l.Listen(s.Listener)
	l.Apply(s.Config)
	s.Start()
	defer s.Close()
	for range 30 { // whether the server notices by itself is a matter of luck
		c, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprintf(c, "POST %s/snapshots HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}", path, h.token); err != nil {
			t.Fatal(err)
		}
		<-arrived
		_ = c.Close()
		time.Sleep(10 * time.Millisecond) // it has to arrive
		goOn <- struct{}{}
		<-over
	}
	var asked struct {
		Events []dormouse.Event `json:"events"`
	}
	h.call(http.MethodGet, path+"/events?limit=1000", "", http.StatusOK, &asked)
	for _, e := range asked.Events {
		if e.Type == dormouse.SnapshotAskedFor {
			t.Errorf("a snapshot was asked for by nobody: %s", e.Payload)
		}
	}
}
