package rest_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/dormouse-run/dormouse/door/rest"
)

// ask sends a prompt, waits until its turn has ended, and returns its id.
func (h *testServer) ask(path, prompt string) string {
	h.t.Helper()
	var p rest.Prompt
	body, err := json.Marshal(map[string]string{"content": prompt})
	if err != nil {
		h.t.Fatal(err)
	}
	h.call(http.MethodPost, path+"/prompts", string(body), http.StatusAccepted, &p)
	h.rested(path)
	return string(p.ID)
}

func TestWhereNoSnapshotsAreTakenThatIsSaid(t *testing.T) {
	h := newServer(t)
	path := h.create(`{"warm":false}`)
	take := func() *http.Request { return h.request(http.MethodPost, path+"/snapshots", strings.NewReader(`{}`)) }
	h.refuses(take(), http.StatusConflict, "no sandbox yet")
	prompt := h.ask(path, `SCRIPT[{"tool":"bash","input":{"command":"true"}},{"text":"done"}]`)
	h.refuses(take(), http.StatusConflict, "no snapshots are taken")

	var none rest.Snapshots
	h.call(http.MethodGet, path+"/snapshots", "", http.StatusOK, &none)
	if none.Snapshots == nil || len(none.Snapshots) != 0 || none.Total != 0 || none.Next != "" {
		t.Errorf("listed %+v", none)
	}
	for range 2 {
		h.call(http.MethodDelete, path+"/snapshots/snap_x", "", http.StatusNoContent, nil)
	}
	var gone rest.Pruned
	h.call(http.MethodPost, path+"/snapshots/prune", `{"keep":1}`, http.StatusOK, &gone)
	if gone.Snapshots == nil || len(gone.Snapshots) != 0 {
		t.Errorf("pruned %+v", gone)
	}
	h.refuses(h.request(http.MethodPost, path+"/revert", strings.NewReader(`{"prompt":"`+prompt+`"}`)), http.StatusConflict, "keeps no snapshots")
}

func TestSnapshotsThatAreNotThereAreNotFound(t *testing.T) {
	h := newServer(t)
	path := h.create(`{"warm":false}`)
	for _, c := range []struct {
		method, below, body string
		status              int
		says                string
	}{
		{"GET", "/snapshots/snap_x", "", 404, "snap_x"},
		{"GET", "/snapshots/nonsense", "", 404, `"nonsense"`},
		{"DELETE", "/snapshots/nonsense", "", 404, `"nonsense"`},
		{"GET", "/snapshots/snap_x/export", "", 404, "snap_x"},
		{"GET", "/snapshots/snap_x/diff", "", 404, "snap_x"},
		{"GET", "/snapshots/snap_x/diff?to=snap_y", "", 404, "snap_y"},
		{"GET", "/snapshots/snap_x/diff?to=", "", 404, `""`},
		{"GET", "/snapshots/snap_x/diff?form=snap_y", "", 400, `"form"`},
		{"GET", "/snapshots/snap_x/diff?with=sesn_nobody", "", 404, "sesn_nobody"},
		{"GET", "/snapshots/snap_x/diff?with=", "", 404, `session ""`},
		{"GET", "/snapshots?limit=0", "", 400, "1 to 100"},
		{"GET", "/snapshots?after=snap_x", "", 400, "names no snapshot"},
		{"GET", "/snapshots?after=nonsense", "", 400, "names no snapshot"},
		{"POST", "/snapshots", `{"label":3}`, 400, `"label" must be a string`},
		{"POST", "/snapshots", `{"name":"x"}`, 400, `"name"`},
		{"POST", "/snapshots", `{"id":"` + strings.Repeat("x", 1000) + `"}`, 400, `"id"`},
		{"POST", "/snapshots", `{"label":"` + strings.Repeat("x", 201) + `"}`, 400, "at most 200"},
		{"POST", "/snapshots/prune", `{}`, 400, "by an age"},
		{"POST", "/snapshots/prune", `{"keep":-1}`, 400, `"keep"`},
		{"POST", "/snapshots/prune", `{"older_than":"soon"}`, 400, `"older_than"`},
		{"POST", "/restore", `{}`, 400, `"snapshot"`},
		{"POST", "/restore", `{"snapshot":"snap_x"}`, 404, "snap_x"},
		{"POST", "/restore", `{"snapshot":"../x"}`, 404, `"../x"`},
		{"POST", "/restore", `{"snapshot":"snap_x","history":"yes"}`, 400, `"history" must be true or false`},
		{"POST", "/revert", `{}`, 400, `"prompt"`},
		{"POST", "/revert", `{"prompt":"nonsense"}`, 404, `"nonsense"`},
		{"POST", "/revert", `{"prompt":"sevt_x"}`, 404, "has not been taken up"},
		{"PUT", "/snapshots", `{}`, 405, "GET and POST"},
	} {
		r := h.request(c.method, path+c.below, nil)
		if c.body != "" {
			r = h.request(c.method, path+c.below, strings.NewReader(c.body))
		}
		h.refuses(r, c.status, c.says)
	}
	h.refuses(h.request(http.MethodGet, "/api/sessions/sesn_x/snapshots", nil), http.StatusNotFound, "sesn_x")
}
