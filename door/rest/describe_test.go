package rest_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/door/rest"
	"github.com/dormouse-run/dormouse/session"
)

func TestDescriptionIsAMergePatch(t *testing.T) {
	h := newServer(t)
	path := h.create(`{"warm":false,"title":"a","tags":["y","x","y"],"metadata":{"k":"1","l":"2","m":null}}`)
	for _, c := range []struct {
		patch, title string
		tags         []string
		metadata     map[string]string
	}{
		{`{}`, "a", []string{"x", "y"}, map[string]string{"k": "1", "l": "2"}},
		{`{"title":"b"}`, "b", []string{"x", "y"}, map[string]string{"k": "1", "l": "2"}},
		{`{"tags":["z"],"metadata":{"k":"3"}}`, "b", []string{"z"}, map[string]string{"k": "3", "l": "2"}},
		{`{"metadata":{"l":null,"n":""}}`, "b", []string{"z"}, map[string]string{"k": "3", "n": ""}},
		{`{"title":null,"tags":null,"metadata":{"k":null,"n":null}}`, "", nil, nil},
	} {
		var row session.Row
		h.call(http.MethodPatch, path, c.patch, http.StatusOK, &row)
		for what, got := range map[string]session.Row{"answered": row, "shown": h.show(path).Row} {
			if got.Title != c.title || !slices.Equal(got.Tags, c.tags) || !maps.Equal(got.Metadata, c.metadata) {
				t.Errorf("%s: %s is %q %v %v", c.patch, what, got.Title, got.Tags, got.Metadata)
			}
		}
	}
	before := h.show(path).Seq
	h.call(http.MethodPatch, path, `{"metadata":{"nothing":null}}`, http.StatusOK, nil)
	if after := h.show(path).Seq; after != before {
		t.Errorf("a change of nothing wrote %d events", after-before)
	}
	h.call(http.MethodPost, path+"/terminate", "", http.StatusOK, nil)
	h.call(http.MethodPatch, path, `{"title":"after its end"}`, http.StatusOK, nil)
}

func TestDescriptionsThatCannotBeMeantAreRefused(t *testing.T) {
	h := newServer(t)
	path := h.create(`{"warm":false,"title":"a"}`)
	for name, c := range map[string]struct {
		patch  string
		status int
		says   string
	}{
		"a number for a title":    {`{"title":1}`, 400, `"title" must be a string`},
		"a string for tags":       {`{"tags":"a"}`, 400, `"tags" must be a list`},
		"a number among tags":     {`{"tags":["a",1]}`, 400, `"tags"`},
		"no metadata at all":      {`{"metadata":null}`, 400, "object"},
		"a number as metadata":    {`{"metadata":{"a":1}}`, 400, `"metadata"`},
		"metadata twice":          {`{"metadata":{"a":"b","a":"c"}}`, 400, "twice"},
		"an empty tag":            {`{"tags":[""]}`, 400, "tag"},
		"an empty key":            {`{"metadata":{"":"a"}}`, 400, "key"},
		"a long title":            {`{"title":"` + strings.Repeat("x", 501) + `"}`, 413, "title"},
		"many tags":               {`{"tags":["a"` + strings.Repeat(`,"a"`, 32) + `]}`, 413, "tags"},
		"a phase":                 {`{"phase":"ready"}`, 400, `"phase"`},
		"a parent":                {`{"parent":"sesn_a"}`, 400, `"parent"`},
		"tags of a new session":   {`{"title":"a\u0000"}`, 400, "NUL"},
		"a title in another case": {`{"Title":"b"}`, 400, `"Title"`},
	} {
		t.Run(name, func(t *testing.T) {
			h := *h
			h.t = t
			h.refuses(h.request(http.MethodPatch, path, strings.NewReader(c.patch)), c.status, c.says)
		})
	}
	if s := h.show(path); s.Title != "a" || s.Tags != nil || s.Metadata != nil {
		t.Errorf("a refused request changed it: %+v", s.Row)
	}
}

func TestListFindsByWhatPeopleSaid(t *testing.T) {
	h := newServer(t)
	names := make(map[string]string)
	for name, body := range map[string]string{
		"a": `{"warm":false,"title":"Fix the Build","tags":["ci","red"],"metadata":{"repo":"dormouse","pr":"7"}}`,
		"b": `{"warm":false,"title":"write docs","tags":["red"],"metadata":{"repo":"other","a:b=c":"1 % _"}}`,
		"c": `{"warm":false,"title":"100% of it","tags":["ci"]}`,
	} {
		names[strings.TrimPrefix(h.create(body), "/api/sessions/")] = name
	}
	for _, c := range []struct {
		query url.Values
		want  string
	}{
		{url.Values{}, "abc"},
		{url.Values{"text": {"BUILD"}}, "a"},
		{url.Values{"text": {"dormouse"}}, "a"},
		{url.Values{"text": {"%"}}, "bc"},
		{url.Values{"text": {"nobody said this"}}, ""},
		{url.Values{"tag": {"red"}}, "ab"},
		{url.Values{"tag": {"red", "ci"}}, "a"},
		{url.Values{"tag": {"r"}}, ""},
		{url.Values{"metadata.repo": {"other"}}, "b"},
		{url.Values{"metadata.repo": {"dormouse"}, "metadata.pr": {"7"}}, "a"},
		{url.Values{"metadata.repo": {"dormouse"}, "metadata.pr": {"8"}}, ""},
		{url.Values{"metadata.a:b=c": {"1 % _"}}, "b"},
		{url.Values{"metadata.repo": {""}}, ""},
		{url.Values{"tag": {"ci"}, "text": {"of"}, "phase": {"ready"}}, "c"},
		{url.Values{"parent": {"sesn_nobody"}}, ""},
	} {
		var page rest.Page
		h.call(http.MethodGet, "/api/sessions?"+c.query.Encode(), "", http.StatusOK, &page)
		var got []string
		for _, s := range page.Sessions {
			got = append(got, names[string(s.Session)])
		}
		slices.Sort(got)
		if strings.Join(got, "") != c.want || page.Sessions == nil {
			t.Errorf("%v found %v, want %s", c.query, got, c.want)
		}
	}
	for _, query := range []string{
		"text=" + strings.Repeat("x", 501), "text=%ff", "text=%00", "text=a&text=b", "tag=", "tag=" + strings.Repeat("x", 65), "parent=x", "parent=",
		"metadata.=a", "metadata.k=1&metadata.k=2", "metadata=a:b", "archived=perhaps", "after=sesn_a%00",
	} {
		h.refuses(h.request(http.MethodGet, "/api/sessions?"+query, nil), http.StatusBadRequest, "")
	}
}

func TestArchivedSessionIsPutAwayAndKept(t *testing.T) {
	h := newServer(t)
	path := h.create(`{"prompt":"SCRIPT[{\"tool\":\"bash\",\"input\":{\"command\":\"wait\"}}]"}`)
	h.until(path, dormouse.PhaseRunning)
	h.refuses(h.request(http.MethodPost, path+"/archive", nil), http.StatusConflict, "running")
	h.call(http.MethodPost, path+"/interrupt", "", http.StatusOK, nil)
	h.rested(path)
	var at time.Time
	for range 2 {
		var row session.Row
		h.call(http.MethodPost, path+"/archive", "", http.StatusOK, &row)
		if row.Archived.IsZero() || !at.IsZero() && !row.Archived.Equal(at) || row.Phase != dormouse.PhaseTerminated {
			t.Errorf("archived %+v", row)
		}
		at = row.Archived
	}
	if s := h.show(path); !s.Archived.Equal(at) || s.Ended != "archived" {
		t.Errorf("shown %+v", s)
	}
	for query, want := range map[string]int{"": 0, "?archived=false": 0, "?archived=true": 1, "?archived": 1} {
		var page rest.Page
		h.call(http.MethodGet, "/api/sessions"+query, "", http.StatusOK, &page)
		if len(page.Sessions) != want {
			t.Errorf("%q lists %d, want %d", query, len(page.Sessions), want)
		}
	}
	if p := h.events(path, "?limit=1000"); len(p.Events) == 0 {
		t.Error("its log is gone")
	}
}

func TestDeletedSessionIsGone(t *testing.T) {
	h := newServer(t)
	path := h.create(`{"prompt":"SCRIPT[{\"tool\":\"bash\",\"input\":{\"command\":\"wait\"}}]"}`)
	h.until(path, dormouse.PhaseRunning)
	f := h.follow(path, "")
	for f.nextEvent().event != string(dormouse.AgentToolUse) { // what was not read before the end is gone with it
	}
	status, b := h.do(h.request(http.MethodDelete, path, nil))
	if status != http.StatusNoContent || len(b) > 0 {
		t.Fatalf("%d %s", status, b)
	}
	for _, r := range []*http.Request{
		h.request(http.MethodDelete, path, nil), h.request(http.MethodGet, path, nil), h.request(http.MethodGet, path+"/events", nil),
		h.request(http.MethodPatch, path, strings.NewReader(`{"title":"x"}`)), h.request(http.MethodPost, path+"/prompts", strings.NewReader(`{"content":"x"}`)),
	} {
		h.refuses(r, http.StatusNotFound, "not found")
	}
	var page rest.Page
	h.call(http.MethodGet, "/api/sessions?archived=true", "", http.StatusOK, &page)
	if len(page.Sessions) != 0 {
		t.Errorf("listed %+v", page.Sessions)
	}
	var last frame
	for {
		got, ok := f.next()
		if !ok {
			break
		}
		if got.event != "" {
			last = got
		}
	}
	if last.event != string(dormouse.SessionDeleted) {
		t.Errorf("the stream ended with %+v", last)
	}
}

func TestDeleteThatTakesItsTimeIsAccepted(t *testing.T) {
	h := newServer(t, func(c *rest.Config) { c.GoneWithin, c.KeepAlive = 10*time.Millisecond, 20*time.Millisecond })
	path := h.create(`{}`)
	h.until(path, dormouse.PhaseReady)
	h.boxes.hold.Lock()
	release := sync.OnceFunc(h.boxes.hold.Unlock)
	t.Cleanup(release)
	for range 2 { // twice is once
		var row session.Row
		h.call(http.MethodDelete, path, "", http.StatusAccepted, &row)
		if row.Phase != dormouse.PhaseTerminated {
			t.Errorf("accepted %+v", row)
		}
	}
	p := h.events(path, "?limit=1000")
	if !slices.Contains(types(p.Events), string(dormouse.SessionDeleted)) {
		t.Errorf("events %v", types(p.Events))
	}
	// A client that connects now has missed the deletion, and is told so at
	// once.
	f := h.follow(path, fmt.Sprintf("&after=%d", p.Next))
	release()
	for last, data := "", ""; ; {
		got, ok := f.next()
		if !ok {
			if last != "error" || !strings.Contains(data, `"type":"not_found"`) {
				t.Errorf("the stream ended with %q %s", last, data)
			}
			break
		}
		if got.event != "" {
			last, data = got.event, got.data
		}
	}
	h.refuses(h.request(http.MethodDelete, path, nil), http.StatusNotFound, "not found")
}
