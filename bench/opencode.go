package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// opencodeVersion is the one that the makefile installs.
const opencodeVersion = "1.18.33"

// opencode is `opencode serve` with the scripted model as its only provider. It
// is configured to be as fast as possible: it asks for no permissions, takes no
// snapshots, fetches nothing, logs errors only, and runs its commands without a
// sandbox.
type opencode struct {
	*server
}

// startOpencode starts it in a directory of its own.
func (b *bench) startOpencode(ctx context.Context, p *provider) (*opencode, error) {
	program, err := filepath.Abs(filepath.Join(b.opencode, "node_modules/opencode-ai/bin/opencode.exe"))
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(program); err != nil {
		return nil, fmt.Errorf("compare with opencode: %w; run make need-bench first", err)
	}
	home, err := b.space("opencode")
	if err != nil {
		return nil, err
	}
	work, config := filepath.Join(home, "work"), filepath.Join(home, "config.json")
	if err := errors.Join(os.Mkdir(work, 0o700), os.WriteFile(config, opencodeConfig(p), 0o600)); err != nil {
		return nil, err
	}
	address, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(home, "log"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.CommandContext(ctx, program, "serve", "--pure", "--log-level", "ERROR", "--port", address[len("127.0.0.1:"):])
	cmd.Dir = work
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + home, "SHELL=/bin/bash", "OPENCODE_CONFIG=" + config,
		"OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_MODELS_FETCH=1", "OPENCODE_DISABLE_LSP_DOWNLOAD=1", "OPENCODE_DISABLE_DEFAULT_PLUGINS=1",
	}
	cmd.Stdout, cmd.Stderr = log, log
	o := &opencode{&server{remote: newRemote(address), cmd: cmd, data: home, began: time.Now()}}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	if err := o.awaitAt(ctx, "/global/health"); err != nil {
		o.kill()
		said, _ := os.ReadFile(log.Name())
		return nil, fmt.Errorf("start opencode: %w; it said:\n%s", err, said)
	}
	return o, nil
}

// opencodeConfig names the scripted model. The client for its protocol is one of
// those inside the program.
func opencodeConfig(p *provider) []byte {
	type m = map[string]any
	doc, _ := json.Marshal(m{
		"autoupdate": false, "share": "disabled", "snapshot": false, "permission": "allow",
		"model": "bench/scripted", "small_model": "bench/scripted", "enabled_providers": []string{"bench"},
		"provider": m{"bench": m{
			"npm": "@ai-sdk/anthropic", "name": "bench", "options": m{"baseURL": p.url + "/v1", "apiKey": "none"},
			"models": m{"scripted": m{"name": "scripted", "tool_call": true, "limit": m{"context": 200_000, "output": 8192}}},
		}},
	})
	return doc
}

// session makes one. It has a title, so that no model is asked for one.
func (o *opencode) session(ctx context.Context) (string, error) {
	var made struct {
		ID string `json:"id"`
	}
	err := o.call(ctx, http.MethodPost, "/session", map[string]any{"title": "bench"}, &made)
	return made.ID, err
}

// turn asks, and returns once it has the last word. The answer comes when the
// turn is over, which is sooner than the event that says so.
func (o *opencode) turn(ctx context.Context, session, text string) error {
	type m = map[string]any
	var said struct {
		Info struct {
			Finish string          `json:"finish"`
			Error  json.RawMessage `json:"error"`
		} `json:"info"`
	}
	err := o.call(ctx, http.MethodPost, "/session/"+session+"/message", m{
		"model": m{"providerID": "bench", "modelID": "scripted"},
		"parts": []m{{"type": "text", "text": text}},
	}, &said)
	if err == nil && said.Info.Finish != "stop" {
		err = fmt.Errorf("the turn ended with %q %s", said.Info.Finish, said.Info.Error)
	}
	return err
}
