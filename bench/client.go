package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/client"
	"github.com/dormouse-run/dormouse/internal/sleep"
)

// remote is a server that is measured: ours, or one that ours is compared with.
type remote struct {
	address string
	token   string
	api     *client.Client
}

func newRemote(address string) *remote {
	r := &remote{address: address}
	api, err := client.New(client.Options{
		Locate: func(context.Context) (client.Server, error) {
			return client.Server{URL: "http://" + address, Token: r.token}, nil
		},
		HTTP:    &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}, Timeout: patience},
		Timeout: patience,
	})
	if err != nil {
		panic(err) // it has nothing to refuse
	}
	r.api = api
	return r
}

// call asks for something and reads the answer into v, if v is not nil.
func (c *remote) call(ctx context.Context, method, path string, body, v any) error {
	if err := c.api.Call(ctx, method, path, body, v); err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	return nil
}

// ask asks for something and returns the answer as it came.
func (c *remote) ask(ctx context.Context, method, path string, body any) (answer []byte, err error) {
	err = c.call(client.KeepAnswer(ctx, &answer), method, path, body, nil)
	return answer, err
}

// create makes a session and returns its id.
func (c *remote) create(ctx context.Context, body map[string]any) (string, error) {
	var made struct {
		Session string `json:"session"`
	}
	err := c.call(ctx, http.MethodPost, "/api/sessions", body, &made)
	return made.Session, err
}

// prompt queues a prompt.
func (c *remote) prompt(ctx context.Context, session, text string) error {
	_, err := c.api.Send(ctx, dormouse.SessionID(session), client.SendOptions{Content: []dormouse.Block{dormouse.Text(text)}})
	return err
}

// anyIn reports whether a session is in the given phase.
func (c *remote) anyIn(ctx context.Context, phase string) (bool, error) {
	page, err := c.api.List(ctx, client.ListOptions{Limit: 1, Phase: dormouse.Phase(phase)})
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
		if err := sleep.For(ctx, moment); err != nil {
			return err
		}
	}
}

// moment is a pause that does not matter for the measurement.
const moment = 20 * time.Millisecond
