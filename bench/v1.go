package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// official is a server as clients of the Managed Agents API see it, with an agent
// and an environment to make sessions of.
type official struct {
	*server
	agent, environment string
}

// offer makes the agent and the environment.
func offer(ctx context.Context, s *server) (*official, error) {
	type m = map[string]any
	o := &official{server: s}
	for _, made := range []struct {
		path string
		body m
		id   *string
	}{
		{"/v1/agents", m{"name": "bench", "model": "scripted", "tools": []m{{"type": "agent_toolset_20260401"}}}, &o.agent},
		{"/v1/environments", m{"name": "bench"}, &o.environment},
	} {
		var answer struct {
			ID string `json:"id"`
		}
		if err := s.call(ctx, http.MethodPost, made.path, made.body, &answer); err != nil {
			return nil, err
		}
		*made.id = answer.ID
	}
	return o, nil
}

// body is the request that makes a session, with what it is asked first if that
// is anything.
func (o *official) body(prompt string) string {
	type m = map[string]any
	body := m{"agent": o.agent, "environment_id": o.environment}
	if prompt != "" {
		body["initial_events"] = []m{message(prompt)}
	}
	return encode(body)
}

func (o *official) session(ctx context.Context, prompt string) (string, error) {
	var made struct {
		ID string `json:"id"`
	}
	err := o.call(ctx, http.MethodPost, "/v1/sessions", json.RawMessage(o.body(prompt)), &made)
	return made.ID, err
}

// send is what a client has to say to a session.
func (o *official) send(ctx context.Context, session, text string) error {
	return o.call(ctx, http.MethodPost, eventsOf(session), json.RawMessage(sending(text)), nil)
}

// listen follows a session up to the event that says it rests.
func (o *official) listen(ctx context.Context, session string) (*follower, error) {
	return o.follow(ctx, eventsOf(session)+"/stream", officialRest, 64<<10)
}

// officialRest is the prefix of the event which says that a session is idle. No text can
// contain it, because its quotes would be escaped there.
const officialRest = `"type":"session.status_idle"`

func eventsOf(session string) string { return "/v1/sessions/" + session + "/events" }

func message(text string) map[string]any {
	return map[string]any{"type": "user.message", "content": []map[string]any{{"type": "text", "text": text}}}
}

func sending(text string) string {
	return encode(map[string]any{"events": []map[string]any{message(text)}})
}

func encode(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("bench: %v", err))
	}
	return string(b)
}

// status is what the API says about a session.
func (o *official) status(ctx context.Context, session string) (string, error) {
	var shown struct {
		Status string `json:"status"`
	}
	err := o.call(ctx, http.MethodGet, "/v1/sessions/"+session, nil, &shown)
	return shown.Status, err
}

// history lists the ids of a session's events.
func (o *official) history(ctx context.Context, session string) ([]string, error) {
	var ids []string
	for next := ""; ; {
		var page struct {
			Data []struct {
				ID string `json:"id"`
			} `json:"data"`
			Next string `json:"next_page"`
		}
		path := eventsOf(session) + "?limit=1000"
		if next != "" {
			path += "&page=" + next
		}
		if err := o.call(ctx, http.MethodGet, path, nil, &page); err != nil {
			return nil, err
		}
		for _, e := range page.Data {
			ids = append(ids, strings.Clone(e.ID))
		}
		if next = page.Next; next == "" {
			return ids, nil
		}
	}
}
