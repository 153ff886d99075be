package v1_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
)

func TestATurnIsToldInOrder(t *testing.T) {
	h := newSessionServer(t)
	id := h.made("")
	events, stop := h.follows(id, "events/stream")
	defer stop()
	sent := h.sends(200, id, message(`hi SCRIPT[{"text":"hello"}]`))
	if first := sent[0].(map[string]any); first["processed_at"] != nil || first["type"] != "user.message" {
		t.Errorf("it was sent as %v", first)
	}
	var seen []string
	for _, f := range next(t, events, "session.status_idle") {
		if f.event != "message" || f.id == "" {
			t.Errorf("a frame has event %q and id %q", f.event, f.id)
		}
		seen = append(seen, field(f.data, "type"))
	}
	same(t, seen, "user.message", "user.message", "session.status_running", "session.thread_status_running",
		"span.model_request_start", "agent.message", "span.model_request_end",
		"session.thread_status_idle", "session.usage", "session.status_idle")
	same(t, types(h.listed(id, "")), seen[1:]...)
	if s := h.ask(200, "GET", "/v1/sessions/"+id, ""); s["status"] != "idle" || s["title"] != nil {
		t.Errorf("the session is %v", s)
	}
}

func TestInitialEventsRunAtOnce(t *testing.T) {
	h := newSessionServer(t)
	id := h.made(`,"title":"t","initial_events":[` + message("one") + `,` + message("two") + `]`)
	h.until(id, "session.status_idle", 2)
	var said []string
	for _, e := range h.listed(id, "types[]=user.message") {
		said = append(said, string(e))
	}
	if len(said) != 2 || !strings.Contains(said[0], "one") || !strings.Contains(said[1], "two") {
		t.Errorf("it was asked %v", said)
	}
	for _, wrong := range []string{
		`,"initial_events":[{"type":"user.interrupt"}]`,
		`,"initial_events":[` + strings.TrimSuffix(strings.Repeat(message("x")+",", 51), ",") + `]`,
		`,"resources":[{"type":"file","file_id":"file_1"}]`, `,"vault_ids":["vlt_1"]`,
		`,"budget":{"type":"limit","max_list_cost":{"currency":"USD","amount":"1"}}`,
		`,"titel":"x"`, `,"title":"` + strings.Repeat("x", 501) + `"`,
	} {
		body := fmt.Sprintf(`{"agent":"agent_x","environment_id":"env_x"%s}`, wrong)
		if status, raw := h.do("POST", "/v1/sessions", body); status != 400 && status != 404 {
			t.Errorf("%.60s: got %d %s", wrong, status, raw)
		}
	}
	if n := len(h.ask(200, "GET", "/v1/sessions", "")["data"].([]any)); n != 1 {
		t.Errorf("there are %d sessions", n)
	}
}

func TestQuestionsAreAnsweredOneByOne(t *testing.T) {
	h := newSessionServer(t)
	id := h.made("")
	h.sends(200, id, message(`SCRIPT[{"tools":[{"name":"ticket","input":{"n":1}},{"name":"read","input":{"file_path":"x"}}]},{"text":"done"}]`))
	idle := h.until(id, "session.status_idle", 1)
	custom, asks := field(h.until(id, "agent.custom_tool_use", 1), "id"), field(h.until(id, "agent.tool_use", 1), "id")
	if !strings.Contains(string(idle), `"requires_action"`) || !strings.Contains(string(idle), custom) || !strings.Contains(string(idle), asks) {
		t.Fatalf("it waits for %s", idle)
	}
	result := fmt.Sprintf(`{"type":"user.custom_tool_result","custom_tool_use_id":%q,"content":[{"type":"text","text":"42"}]}`, custom)
	first := h.sends(200, id, result)
	if rest := h.until(id, "session.status_idle", 2); strings.Contains(string(rest), custom) || !strings.Contains(string(rest), asks) {
		t.Errorf("it waits for %s", rest)
	}
	if again := h.sends(200, id, result); fmt.Sprint(again) != fmt.Sprint(first) {
		t.Errorf("sent again it is %v, first %v", again, first)
	}
	h.sends(400, id, strings.Replace(result, "42", "43", 1))
	h.sends(400, id, fmt.Sprintf(`{"type":"user.tool_confirmation","tool_use_id":%q,"result":"allow","deny_message":"no"}`, asks))
	h.sends(200, id, fmt.Sprintf(`{"type":"user.tool_confirmation","tool_use_id":%q,"result":"deny","deny_message":"not today"}`, asks))
	h.until(id, "session.status_idle", 3)
	if denied := string(h.until(id, "agent.tool_result", 1)); !strings.Contains(denied, "not today") || !strings.Contains(denied, `"is_error":true`) {
		t.Errorf("the agent was told %s", denied)
	}
	h.listed(id, "")
}

func TestAnInterruptVoidsWhatWasAskedAndRedirects(t *testing.T) {
	h := newSessionServer(t)
	id := h.made("")
	h.sends(200, id, message(`SCRIPT[{"tool":"ticket","input":{}},{"text":"never"}]`))
	h.until(id, "session.status_idle", 1)
	use := field(h.until(id, "agent.custom_tool_use", 1), "id")
	sent := h.sends(200, id, `{"type":"user.interrupt"}`, message(`SCRIPT[{"text":"redirected"}]`))
	if len(sent) != 2 || sent[0].(map[string]any)["processed_at"] == nil || sent[1].(map[string]any)["processed_at"] != nil {
		t.Errorf("it was sent as %v", sent)
	}
	if said := string(h.until(id, "agent.message", 1)); !strings.Contains(said, "redirected") {
		t.Errorf("it said %s", said)
	}
	h.sends(400, id, fmt.Sprintf(`{"type":"user.custom_tool_result","custom_tool_use_id":%q}`, use))
	h.until(id, "session.status_idle", 3)
	if nothing := h.sends(200, id, `{"type":"user.interrupt"}`); len(nothing) != 1 {
		t.Errorf("an interrupt of nothing is %v", nothing)
	}
	h.listed(id, "")
}

func TestAllOfARequestIsTakenOrNothing(t *testing.T) {
	h := newSessionServer(t)
	id := h.made("")
	h.sends(400, id, message("hello"), `{"type":"user.custom_tool_result","custom_tool_use_id":"sevt_none"}`)
	for _, wrong := range []string{
		``, `{"type":"user.message","content":[]}`, `{"type":"user.message","content":[{"type":"text","text":""}]}`,
		`{"type":"user.message","content":[{"type":"redacted"}]}`, `{"type":"agent.message","content":[{"type":"text","text":"x"}]}`,
		`{"type":"user.message","content":[{"type":"image","source":{"type":"file","file_id":"f"}}]}`,
		`{"type":"user.message","content":[{"type":"search_result","source":"s","title":"t","content":[],"citations":{"enabled":false}}]}`,
		`{"type":"system.message","content":[{"type":"text","text":"x"}]}`,
		`{"type":"system.message","content":[{"type":"text","text":"x"}]},` + message("after"),
		`{"type":"user.define_outcome","description":"d","rubric":{"type":"text","content":"c"}}`,
		`{"type":"user.tool_result","tool_use_id":"sevt_1"}`, `{"type":"user.interrupt","session_thread_id":"sthr_none"}`,
	} {
		if status, raw := h.do("POST", "/v1/sessions/"+id+"/events", `{"events":[`+wrong+`]}`); status != 400 && status != 404 {
			t.Errorf("%s: got %d %s", wrong, status, raw)
		}
	}
	if n := len(h.listed(id, "")); n != 0 {
		t.Errorf("there are %d events", n)
	}
}

func TestASystemMessageFollowsWhatItBelongsTo(t *testing.T) {
	h := newSessionServer(t)
	id := h.made("")
	system := `{"type":"system.message","content":[{"type":"text","text":"be brief"}]}`
	if sent := h.sends(200, id, message(`SCRIPT[{"tool":"ticket","input":{}},{"text":"ok"}]`), system); len(sent) != 2 {
		t.Errorf("it was sent as %v", sent)
	}
	h.until(id, "session.status_idle", 1)
	same(t, types(h.listed(id, ""))[:2], "user.message", "system.message")
	h.sends(400, id, message("next"), system)
	use := field(h.until(id, "agent.custom_tool_use", 1), "id")
	h.sends(200, id, fmt.Sprintf(`{"type":"user.custom_tool_result","custom_tool_use_id":%q}`, use), system)
	h.until(id, "session.status_idle", 2)
	if n := len(h.listed(id, "types[]=system.message")); n != 2 {
		t.Errorf("%d system messages were taken", n)
	}
	h.listed(id, "")
}

func TestARequestWithAKeyIsOne(t *testing.T) {
	h := newSessionServer(t)
	id := h.made("")
	path, body := "/v1/sessions/"+id+"/events", `{"events":[{"type":"user.interrupt"},`+message("hello")+`]}`
	first := h.ask(200, "POST", path, body, "Idempotency-Key", "k1")
	h.until(id, "session.status_idle", 1)
	again := h.ask(200, "POST", path, body, "Idempotency-Key", "k1")
	id0 := func(v map[string]any, n int) any { return v["data"].([]any)[n].(map[string]any)["id"] }
	if id0(first, 0) != id0(again, 0) || id0(first, 1) != id0(again, 1) {
		t.Errorf("sent again it is %v, first %v", again, first)
	}
	h.ask(409, "POST", path, `{"events":[`+message("other")+`]}`, "Idempotency-Key", "k1")
	if n := len(h.listed(id, "types[]=user.message")); n != 1 {
		t.Errorf("it was asked %d times", n)
	}
	s := h.ask(200, "GET", "/v1/sessions/"+id, "")
	asked := fmt.Sprintf(`{"agent":%q,"environment_id":%q,"initial_events":[%s]}`, s["agent"].(map[string]any)["id"], s["environment_id"], message("x"))
	a := h.ask(200, "POST", "/v1/sessions", asked, "Idempotency-Key", "k1")
	if a["status"] != "running" {
		t.Errorf("it was made %v", a["status"])
	}
	if b := h.ask(200, "POST", "/v1/sessions", asked, "Idempotency-Key", "k1"); b["id"] != a["id"] {
		t.Errorf("made again it is %v, first %v", b["id"], a["id"])
	}
	h.ask(409, "POST", "/v1/sessions", strings.Replace(asked, `"x"`, `"y"`, 1), "Idempotency-Key", "k1")
	if n := len(h.ask(200, "GET", "/v1/sessions", "")["data"].([]any)); n != 2 {
		t.Errorf("there are %d sessions", n)
	}
}

// Whatever key a client gives, it names no event that the session was made with.
func TestNoKeyNamesAnInitialEvent(t *testing.T) {
	h := newSessionServer(t)
	s := h.ask(200, "GET", "/v1/sessions/"+h.made(""), "")
	made := h.ask(200, "POST", "/v1/sessions", fmt.Sprintf(`{"agent":%q,"environment_id":%q,"initial_events":[%s]}`,
		s["agent"].(map[string]any)["id"], s["environment_id"], message("hello")))
	id := made["id"].(string)
	h.until(id, "session.status_idle", 1)
	h.ask(200, "POST", "/v1/sessions/"+id+"/events", `{"events":[`+message("hello")+`]}`, "Idempotency-Key", "initial")
	h.until(id, "session.status_idle", 2)
	if n := len(h.listed(id, "types[]=user.message")); n != 2 {
		t.Errorf("it was asked %d times, want 2", n)
	}
}

func TestEventsAreListedInBothDirectionsAndByPage(t *testing.T) {
	h := newSessionServer(t)
	id := h.made("")
	h.sends(200, id, message(`SCRIPT[{"text":"a"}]`))
	h.until(id, "session.status_idle", 1)
	h.sends(200, id, message(`SCRIPT[{"text":"b","delay_ms":600000}]`))
	h.until(id, "span.model_request_start", 2)
	for i := range 3 {
		h.sends(200, id, message(fmt.Sprint("waits ", i)))
	}
	all := h.listed(id, "")
	if field(all[len(all)-1], "processed_at") != "" || field(all[len(all)-4], "processed_at") == "" {
		t.Errorf("the last are %s", all[len(all)-4:])
	}
	backwards := h.listed(id, "order=desc&limit=2")
	slices.Reverse(backwards)
	for _, got := range [][]json.RawMessage{h.listed(id, "limit=1"), h.listed(id, "limit=3"), backwards} {
		same(t, texts(got), texts(all)...)
	}
	if n := len(h.listed(id, "types[]=user.message&types[]=agent.message")); n != 6 {
		t.Errorf("%d messages are listed", n)
	}
	at := field(all[3], "processed_at")
	for query, want := range map[string]bool{"created_at[gte]=": true, "created_at[gt]=": false, "created_at[lt]=": false, "created_at[lte]=": true} {
		if got := slices.Contains(texts(h.listed(id, query+at)), string(all[3])); got != want {
			t.Errorf("%s: the event of then is listed: %v", query, got)
		}
	}
	h.ask(400, "GET", "/v1/sessions/"+id+"/events?order=desc&page=nonsense", "")
	h.ask(400, "GET", "/v1/sessions/"+id+"/events?types[]=nothing", "")
	h.sends(200, id, `{"type":"user.interrupt"}`)
}

// A prompt that is taken between two pages is on one of them.
func TestAPagerMissesNothingThatIsTakenMeanwhile(t *testing.T) {
	h := newSessionServer(t)
	id := h.made("")
	h.sends(200, id, message(`SCRIPT[{"text":"b","delay_ms":600000}]`))
	h.until(id, "span.model_request_start", 1)
	system := `{"type":"system.message","content":[{"type":"text","text":"be brief"}]}`
	for i := range 3 {
		h.sends(200, id, message(fmt.Sprint("waits ", i)), system)
	}
	before := len(h.listed(id, "")) - 6
	got := make(map[string]string) // by id: processed or not, as seen last
	page, taken := "", false
	for {
		_, raw := h.do("GET", fmt.Sprintf("/v1/sessions/%s/events?limit=%d%s", id, before+1, page), "")
		var p struct {
			Data []json.RawMessage `json:"data"`
			Next *string           `json:"next_page"`
		}
		if err := json.Unmarshal([]byte(raw), &p); err != nil || p.Data == nil {
			t.Fatal(raw)
		}
		for _, e := range p.Data {
			got[field(e, "type")+" "+field(e, "id")] = field(e, "processed_at")
		}
		if p.Next == nil {
			break
		}
		if page = "&page=" + *p.Next; !taken {
			taken = true
			h.sends(200, id, `{"type":"user.interrupt"}`)
			h.until(id, "session.status_idle", 4)
		}
	}
	messages, systems := 0, 0
	for e, at := range got {
		switch kind, _, _ := strings.Cut(e, " "); kind {
		case "user.message":
			messages++
		case "system.message":
			systems++
		default:
			if at == "" {
				t.Errorf("%s was never processed", e)
			}
		}
	}
	if messages != 4 || systems != 3 {
		t.Errorf("%d messages and %d system messages were seen", messages, systems)
	}
}

func texts(events []json.RawMessage) []string {
	out := make([]string, len(events))
	for i, e := range events {
		out[i] = string(e)
	}
	return out
}

func TestASessionIsChangedPutAwayAndRemoved(t *testing.T) {
	h := newSessionServer(t)
	id := h.made(`,"metadata":{"a":"1","b":"2"}`)
	path := "/v1/sessions/" + id
	s := h.ask(200, "POST", path, `{"title":"new","metadata":{"a":null,"c":"3"},"agent":{"tools":[]}}`)
	if s["title"] != "new" || fmt.Sprint(s["metadata"]) != "map[b:2 c:3]" || len(s["agent"].(map[string]any)["tools"].([]any)) != 0 {
		t.Errorf("it became %v", s)
	}
	if s = h.ask(200, "POST", path, `{"title":null}`); s["title"] != nil {
		t.Errorf("its title is %v", s["title"])
	}
	changes := h.listed(id, "types[]=session.updated")
	if len(changes) != 2 || !strings.Contains(string(changes[0]), `"agent":{`) || !strings.Contains(string(changes[1]), `"title":null`) {
		t.Errorf("the changes are %s", changes)
	}
	h.ask(400, "POST", path, `{"vault_ids":[]}`)
	h.ask(400, "POST", path, `{"title":""}`)
	h.sends(200, id, message(`SCRIPT[{"text":"b","delay_ms":600000}]`))
	h.until(id, "span.model_request_start", 1)
	h.ask(400, "POST", path, `{"agent":{"tools":[{"type":"agent_toolset_20260401"}]}}`)
	h.ask(400, "POST", path+"/archive", "")
	h.ask(400, "DELETE", path, "")
	h.sends(200, id, `{"type":"user.interrupt"}`)
	events, stop := h.follows(id, "events/stream")
	defer stop()
	if s = h.ask(200, "POST", path+"/archive", ""); s["status"] != "terminated" || s["archived_at"] == nil {
		t.Errorf("it was put away as %v", s)
	}
	next(t, events, "session.status_terminated")
	if f, more := <-events; more {
		t.Errorf("after the end came %s", f.data)
	}
	h.sends(400, id, message("too late"))
	h.listed(id, "")
	if n := len(h.ask(200, "GET", "/v1/sessions", "")["data"].([]any)); n != 0 {
		t.Errorf("%d sessions are listed", n)
	}
	h.ask(200, "DELETE", path, "")
	h.ask(404, "GET", path, "")

	other := h.made("")
	last, end := h.follows(other, "events/stream")
	defer end()
	h.ask(200, "DELETE", "/v1/sessions/"+other, "")
	next(t, last, "session.deleted")
	if f, more := <-last; more {
		t.Errorf("after the deletion came %s", f.data)
	}
}

// unreadable is a store in which logs of some sessions cannot be read at all.
type unreadable struct {
	store.Store
	logs sync.Map // of dormouse.SessionID
}

func (s *unreadable) Read(ctx context.Context, id dormouse.SessionID, after uint64, limit int) ([]dormouse.Event, error) {
	if _, is := s.logs.Load(id); is {
		return nil, &store.DamageError{Session: id, Seq: after + 1, Err: errors.New("a byte has flipped")}
	}
	return s.Store.Read(ctx, id, after, limit)
}

// A page is of many sessions, and one of them must not take it from the others.
func TestSessionsThatCannotBeFoldedAreListedWithTheOthers(t *testing.T) {
	h := newSessionServer(t)
	plain, newer, lies, hurt := h.made(""), h.made(`,"title":"dreaming","metadata":{"k":"v"}`), h.made(`,"title":"lying"`), h.made(`,"title":"hurt"`)
	for _, id := range []string{newer, lies} {
		id := dormouse.SessionID(id)
		row, err := h.store.Session(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		epoch, err := h.store.Claim(t.Context(), id, 0)
		if err != nil {
			t.Fatal(err)
		}
		row.Seq++
		e := dormouse.Event{Seq: row.Seq, ID: "sevt_dream", Type: "session.dreamt", Actor: dormouse.ActorServer, Time: row.Updated, Payload: []byte(`{}`)}
		if id == dormouse.SessionID(newer) {
			row.Needs, row.Status = dormouse.LogVersion+1, "dreaming"
		}
		b := store.Batch{Session: id, Epoch: epoch, After: row.Seq - 1, Events: []dormouse.Event{e}, Rows: &dormouse.Rows{Session: row}}
		if err := h.store.Append(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	h.store.(*unreadable).logs.Store(dormouse.SessionID(hurt), true)
	all := make(map[string]map[string]any)
	for _, s := range h.ask(200, "GET", "/v1/sessions", "")["data"].([]any) {
		one := s.(map[string]any)
		all[one["id"].(string)] = one
	}
	for id, title := range map[string]any{plain: nil, newer: "dreaming", lies: "lying", hurt: "hurt"} {
		if all[id]["title"] != title || all[id]["status"] != "idle" {
			t.Errorf("%v is listed as %v", title, all[id])
		}
	}
	if agent, _ := all[newer]["agent"].(map[string]any); agent["name"] != "agent" || fmt.Sprint(all[newer]["metadata"]) != "map[k:v]" {
		t.Errorf("it is listed as %v", all[newer])
	}
	if all[newer]["environment_id"] == all[plain]["environment_id"] || len(all) != 4 {
		t.Errorf("%d are listed, with the environments %v and %v", len(all), all[newer]["environment_id"], all[plain]["environment_id"])
	}
	h.ask(503, "GET", "/v1/sessions/"+newer, "") // another server may know all of it
	h.store.(*unreadable).logs.Clear()
}
