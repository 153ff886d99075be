package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

// client speaks the public API.
type client struct {
	address string
	url     string
	token   string
	http    *http.Client
}

func newClient(address string) *client {
	return &client{
		address: address, url: "http://" + address,
		http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}, Timeout: patience},
	}
}

// call asks for something and reads the answer into v, if v is not nil.
func (c *client) call(ctx context.Context, method, path string, body, v any) error {
	answer, err := c.ask(ctx, method, path, body)
	if err != nil || v == nil {
		return err
	}
	return json.Unmarshal(answer, v)
}

// ask asks for something and returns the answer as it came.
func (c *client) ask(ctx context.Context, method, path string, body any) ([]byte, error) {
	var send io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		send = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.url+path, send)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	r, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Body.Close() }()
	answer, err := io.ReadAll(r.Body)
	if err == nil && r.StatusCode >= http.StatusMultipleChoices {
		err = fmt.Errorf("%s %s: %s: %s", method, path, r.Status, answer)
	}
	return answer, err
}

// create makes a session and returns its id.
func (c *client) create(ctx context.Context, body map[string]any) (string, error) {
	var made struct {
		Session string `json:"session"`
	}
	err := c.call(ctx, http.MethodPost, "/api/sessions", body, &made)
	return made.Session, err
}

// prompt queues a prompt.
func (c *client) prompt(ctx context.Context, session, text string) error {
	return c.call(ctx, http.MethodPost, "/api/sessions/"+session+"/prompts", map[string]any{"content": text}, nil)
}

// anyIn reports whether a session is in the given phase.
func (c *client) anyIn(ctx context.Context, phase string) (bool, error) {
	var page struct {
		Sessions []json.RawMessage `json:"sessions"`
	}
	err := c.call(ctx, http.MethodGet, "/api/sessions?limit=1&phase="+phase, nil, &page)
	return len(page.Sessions) > 0, err
}

// until asks again and again until done says yes.
func until(ctx context.Context, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("nothing came of it in %s", patience))
	defer cancel()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(moment):
		}
	}
}

// moment is how long nobody minds.
const moment = 20 * time.Millisecond
