package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/dormouse-run/dormouse/model/scripted"
)

// provider is the scripted model behind HTTP, as a real one would be.
type provider struct {
	url    string
	plays  *scripted.Server
	server *http.Server
	http   *http.Client
}

func newProvider(ctx context.Context) (*provider, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	plays := scripted.NewServer(scripted.Options{})
	p := &provider{
		url: "http://" + l.Addr().String(), plays: plays, server: &http.Server{Handler: plays, ReadHeaderTimeout: patience},
		http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}},
	}
	go func() { _ = p.server.Serve(l) }()
	return p, nil
}

func (p *provider) close() {
	p.http.CloseIdleConnections()
	_ = p.server.Close()
}

// ask sends a conversation and reads the reply to its end.
func (p *provider) ask(ctx context.Context, messages []any) error {
	body, err := json.Marshal(map[string]any{"model": "scripted", "max_tokens": 1000, "stream": true, "messages": messages})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+"/v1/messages", bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Anthropic-Version", "2023-06-01")
	r, err := p.http.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = r.Body.Close() }()
	said, err := io.ReadAll(r.Body)
	if err == nil && r.StatusCode != http.StatusOK {
		err = fmt.Errorf("the model said %s: %s", r.Status, said)
	}
	return err
}
