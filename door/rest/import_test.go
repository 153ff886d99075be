//go:build linux

package rest_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/door/rest"
	"github.com/dormouse-run/dormouse/session"
	"github.com/dormouse-run/dormouse/snapshot/snapshottest"
)

// sends is a request that brings an image.
func (h *testServer) sends(path string, image io.Reader) *http.Request {
	h.t.Helper()
	r := h.request(http.MethodPost, path, image)
	r.Header.Set("Content-Type", "application/x-tar")
	return r
}

func (h *testServer) imports(path string, image []byte, want int, out any) {
	h.t.Helper()
	status, raw := h.do(h.sends(path, bytes.NewReader(image)))
	if status != want {
		h.t.Fatalf("%s: %d, want %d: %s", path, status, want, raw)
	}
	if err := json.Unmarshal(raw, out); err != nil {
		h.t.Fatal(err)
	}
}

func TestWhatWasExportedIsBroughtInAgain(t *testing.T) {
	h := newServerWithSnapshots(t)
	path := h.create(`{}`)
	h.does(path, "echo one >a; mkdir d; echo x >d/x")
	point := h.waitSnapshots(path, 1)[0]
	status, image := h.do(h.request(http.MethodGet, path+"/snapshots/"+string(point.ID)+"/export", nil))
	if status != http.StatusOK {
		t.Fatal(status)
	}
	h.does(path, "rm -r d; echo two >a")
	h.waitSnapshots(path, 2)

	// As a snapshot of the session, beside its chain.
	var came, again rest.Snapshot
	h.imports(path+"/snapshots/import?id=mine&label=as+it+was", image, http.StatusOK, &came)
	h.imports(path+"/snapshots/import?id=mine", image, http.StatusOK, &again)
	if diff := cmp.Diff(came, again, cmp.AllowUnexported(session.Ref{})); diff != "" {
		t.Errorf("brought in twice it is another:\n%s", diff)
	}
	if !came.Aside || came.Newest || came.Label != "as it was" || came.Reason != dormouse.SnapshotImported {
		t.Errorf("came as %+v", came)
	}
	h.call(http.MethodPost, path+"/restore", `{"snapshot":"`+string(came.ID)+`"}`, http.StatusOK, nil)
	const want = "a:one\nd/x:x\n"
	if got := h.files(path); got != want {
		t.Errorf("restored it has %q", got)
	}

	// As a session of its own.
	said := url.Values{"session": {`{"title":"carried over","tags":["x"]}`}, "id": {"mine"}}
	var made, same rest.Imported
	h.imports("/api/sessions/import?"+said.Encode(), image, http.StatusCreated, &made)
	h.imports("/api/sessions/import?"+said.Encode(), image, http.StatusCreated, &same)
	if same.Session != made.Session || same.Snapshot != made.Snapshot || made.Title != "carried over" || made.Snapshot == "" {
		t.Errorf("made %+v, and again %+v", made, same)
	}
	other := "/api/sessions/" + string(made.Session)
	if got := h.files(other); got != want {
		t.Errorf("the session has %q", got)
	}
	if all := h.listSnapshots(other, ""); all.Total != 1 || all.Snapshots[0].ID != made.Snapshot || !all.Snapshots[0].Newest {
		t.Errorf("its line is %+v", all)
	}

	// Another image is another thing.
	different := new(snapshottest.Image).Add(snapshottest.Tar("b", "1"), snapshottest.Plain).Tar()
	for _, at := range []string{path + "/snapshots/import?id=mine", "/api/sessions/import?id=mine"} {
		h.refuses(h.sends(at, bytes.NewReader(different)), http.StatusConflict, "another image")
	}
}

func TestImagesThatCannotBeBroughtInAreRefused(t *testing.T) {
	h := newServerWithSnapshots(t)
	path := h.create(`{"warm":false}`)
	image := new(snapshottest.Image).Add(snapshottest.Tar("a", "1"), snapshottest.Plain).Tar()
	hostile := new(snapshottest.Image).Add(snapshottest.Tar("a", "1"), snapshottest.Plain).Add(snapshottest.Tar("../b", "1"), snapshottest.Plain).Tar()
	for _, c := range []struct {
		at, body, says string
		status         int
	}{
		{"/snapshots/import", "junk", "no tar", 400},
		{"/snapshots/import", string(image[:700]), "no tar", 400},
		{"/snapshots/import", string(hostile), "layer 2", 400},
		{"/snapshots/import?name=x", string(image), `"name"`, 400},
		{"/snapshots/import?label=" + strings.Repeat("x", 201), string(image), "at most 200", 400},
		{"/snapshots/import?id=" + strings.Repeat("x", 1000), string(image), `"id"`, 400},
	} {
		h.refuses(h.sends(path+c.at, strings.NewReader(c.body)), c.status, c.says)
	}
	for query, says := range map[string]string{
		"id=" + strings.Repeat("x", 1000):                                  `"id"`,
		"label=" + strings.Repeat("x", 201):                                "at most 200",
		"session=x":                                                        "JSON",
		"session=" + url.QueryEscape(`{"titel":"x"}`):                      `"titel"`,
		"session=" + url.QueryEscape(`{"prompt":"x"}`):                     "no first prompt",
		"session=" + url.QueryEscape(`{"parent":"sesn_x"}`):                "no parent",
		"session=" + url.QueryEscape(`{"environment":{"image":"debian"}}`): "environment",
	} {
		h.refuses(h.sends("/api/sessions/import?"+query, bytes.NewReader(image)), http.StatusBadRequest, says)
	}
	h.refuses(h.request(http.MethodPost, path+"/snapshots/import", bytes.NewReader(image)), http.StatusUnsupportedMediaType, "application/x-tar")
	h.refuses(h.sends("/api/sessions/sesn_x/snapshots/import", bytes.NewReader(image)), http.StatusNotFound, "sesn_x")
	h.refuses(h.request(http.MethodGet, "/api/sessions/import", nil), http.StatusMethodNotAllowed, "POST")
	h.nothingLeft(path)
}

// nothingLeft makes sure that there is one session, without snapshots, and no blob.
func (h *testServer) nothingLeft(path string) {
	h.t.Helper()
	if all := h.listSnapshots(path, ""); all.Total != 0 {
		h.t.Errorf("there are %+v", all)
	}
	var sessions struct {
		Sessions []session.Row `json:"sessions"`
	}
	h.call(http.MethodGet, "/api/sessions", "", http.StatusOK, &sessions)
	if len(sessions.Sessions) != 1 {
		h.t.Errorf("there are %d sessions", len(sessions.Sessions))
	}
	for _, dir := range []string{"layers", "names", "uses"} {
		left, err := os.ReadDir(filepath.Join(h.layers, dir))
		if err != nil || len(left) > 0 {
			h.t.Errorf("in %s are %v, %v", dir, left, err)
		}
	}
	if left := h.making(); len(left) > 0 {
		h.t.Errorf("left are %v", left)
	}
}

// making is what is being made of layers.
func (h *testServer) making() []string {
	h.t.Helper()
	names, err := filepath.Glob(filepath.Join(h.layers, "tmp", "*", "*"))
	if err != nil {
		h.t.Fatal(err)
	}
	return names
}

// waitMaking waits until something is being made of layers, or nothing is.
func (h *testServer) waitMaking(is bool) {
	h.t.Helper()
	for deadline := time.Now().Add(time.Minute); len(h.making()) > 0 != is; time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			h.t.Errorf("for a minute it is not so that something is being read: %v", is)
			return
		}
	}
}

// A client that leaves in the midst of it leaves nothing.
func TestAnImageThatIsCutOffLeavesNothing(t *testing.T) {
	h := newServerWithSnapshots(t)
	path := h.create(`{"warm":false}`)
	image := new(snapshottest.Image).Add(snapshottest.Tar("a", strings.Repeat("x", 1<<20)), snapshottest.Plain).Tar()
	for _, at := range []string{path + "/snapshots/import", "/api/sessions/import"} {
		r, w := io.Pipe()
		go func() {
			_, _ = w.Write(image[:len(image)/2])
			h.waitMaking(true) // or there is nothing to leave
			_ = w.CloseWithError(io.ErrUnexpectedEOF)
		}()
		res, err := h.http.Do(h.sends(at, r)) //nolint:bodyclose // there is none
		if err == nil {
			t.Errorf("%s: answered %s", at, res.Status)
		}
		h.waitMaking(false)
	}
	h.nothingLeft(path)
}
