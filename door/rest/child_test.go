package rest_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/door/rest"
)

func (h *testServer) children(path, query string) ([]rest.Child, dormouse.SessionID) {
	h.t.Helper()
	var answer struct {
		Children []rest.Child       `json:"children"`
		Next     dormouse.SessionID `json:"next"`
	}
	h.call(http.MethodGet, path+"/children"+query, "", http.StatusOK, &answer)
	if answer.Children == nil {
		h.t.Errorf("%s: no list", path)
	}
	return answer.Children, answer.Next
}

func TestChildIsMadeLikeItsParent(t *testing.T) {
	h := newServer(t)
	parent := h.create(`{"warm":false,"agent":"lead","tools":[{"name":"bash","permission":"ask"},{"name":"read"}],"recovery":"ask","sleep_after":"7m"}`)
	id := strings.TrimPrefix(parent, "/api/sessions/")
	if all, _ := h.children(parent, ""); len(all) != 0 {
		t.Errorf("children %+v", all)
	}
	child := h.create(fmt.Sprintf(`{"parent":%q,"warm":false,"title":"c","tags":["x"],"prompt":"hello"}`, id))
	s := h.show(child)
	if string(s.Parent) != id || s.Agent.Name != "lead" || len(s.Agent.Tools) != 2 || s.Agent.Tools[0].Permission != dormouse.PermissionAsk ||
		s.Recovery != dormouse.RecoverAsk || s.SleepAfter != "7m0s" || s.Title != "c" || len(s.Tags) != 1 {
		t.Errorf("made %+v", s)
	}
	h.rested(child)
	for name, c := range map[string]struct{ tools, says string }{
		"a tool its parent lacks":          {`[{"name":"write"}]`, `the parent has no tool "write"`},
		"a tool its parent must ask for":   {`[{"name":"bash"}]`, `permission for "bash" is ask`},
		"a custom tool its parent lacks":   {`[],"custom_tools":[{"name":"lookup"}]`, `the parent has no tool "lookup"`},
		"a tool that is not a tool at all": {`[{"name":"a b"}]`, "letters"},
	} {
		t.Run(name, func(t *testing.T) {
			h := *h
			h.t = t
			body := fmt.Sprintf(`{"parent":%q,"warm":false,"tools":%s}`, id, c.tools)
			h.refuses(h.request(http.MethodPost, "/api/sessions", strings.NewReader(body)), http.StatusBadRequest, c.says)
		})
	}
	fewer := h.create(fmt.Sprintf(`{"parent":%q,"warm":false,"tools":[{"name":"bash","permission":"ask"}]}`, id))
	all, next := h.children(parent, "")
	if len(all) != 2 || next != "" || "/api/sessions/"+string(all[0].Session) != fewer || all[0].Stage == rest.ChildEnded {
		t.Errorf("children %+v", all)
	}
	if first, next := h.children(parent, "?limit=1"); len(first) != 1 || next != first[0].Session {
		t.Errorf("the first page is %+v, then %s", first, next)
	} else if second, next := h.children(parent, "?limit=1&after="+string(next)); len(second) != 1 || next != "" || second[0].Session == first[0].Session {
		t.Errorf("the second page is %+v, then %s", second, next)
	}
	if s := h.show(parent); len(s.Children) != 2 || s.Children[1].Session != all[0].Session {
		t.Errorf("shown %+v", s.Children)
	}
	var page rest.Page
	h.call(http.MethodGet, "/api/sessions?parent="+id, "", http.StatusOK, &page)
	if len(page.Sessions) != 2 {
		t.Errorf("listed %+v", page.Sessions)
	}
	h.call(http.MethodPost, parent+"/terminate", "", http.StatusOK, nil)
	h.refuses(h.request(http.MethodPost, "/api/sessions", strings.NewReader(fmt.Sprintf(`{"parent":%q}`, id))), http.StatusConflict, "terminated")
}

func TestChildIsEndedByItsParent(t *testing.T) {
	h := newServer(t)
	parent := h.create(`{"warm":false}`)
	body := fmt.Sprintf(`{"parent":%q,"warm":false}`, strings.TrimPrefix(parent, "/api/sessions/"))
	first, second := h.create(body), h.create(body)
	end := func(child string) *http.Request {
		return h.request(http.MethodDelete, parent+"/children/"+strings.TrimPrefix(child, "/api/sessions/"), nil)
	}
	if status, b := h.do(end(first)); status != http.StatusOK {
		t.Fatalf("%d %s", status, b)
	}
	h.until(first, dormouse.PhaseTerminated)
	for deadline := time.Now().Add(10 * time.Second); len(h.show(parent).Children) != 1; time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("children %+v", h.show(parent).Children)
		}
	}
	all, _ := h.children(parent, "")
	if len(all) != 2 || all[0].Stage != rest.ChildStarted || all[1].Stage != rest.ChildEnded || all[1].Phase != dormouse.PhaseTerminated {
		t.Errorf("children %+v", all)
	}
	h.refuses(end(first), http.StatusNotFound, "no child")
	h.refuses(end(parent), http.StatusNotFound, "no child")
	h.refuses(end("x"), http.StatusNotFound, `child "x"`)
	h.call(http.MethodPost, parent+"/terminate", "", http.StatusOK, nil)
	h.until(second, dormouse.PhaseTerminated)
}
