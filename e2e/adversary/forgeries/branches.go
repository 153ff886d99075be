package forgeries

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
)

func branches() []Case {
	return []Case{
		{"branches-share-nothing", "whether eight branches of one snapshot share an id, a secret or chance", branchesShareNothing},
		{"layers-hold-no-secret", "the server's own secrets in what is kept of workspaces", layersHoldNoSecret},
	}
}

func rawJSON(text string) json.RawMessage { return json.RawMessage(text) }

// branch makes a session that goes on from the snapshot.
func (p *person) branch(ctx context.Context) (*person, error) {
	var made struct {
		Session dormouse.SessionID `json:"session"`
	}
	err := p.Repeat(ctx, http.MethodPost, p.Path("/branch"), map[string]any{"snapshot": p.shot.ID}, &made)
	return &person{Session: &rig.Session{Client: p.Client, ID: made.Session}, name: "branch of " + p.name}, err
}

// branchesShareNothing compares what must be each branch's own.
func branchesShareNothing(ctx context.Context, w *World) (string, error) {
	const many = 8
	h := w.Strict
	seen := make(map[string]string) // what, and whose
	for n := range many {
		b, err := h.me.branch(ctx)
		if err != nil {
			return "", err
		}
		own, err := h.own(ctx, b)
		if err != nil {
			return "", err
		}
		for kind, value := range own {
			if value == "" {
				return "", fmt.Errorf("branch %d has no %s", n, kind)
			}
			if whose, shared := seen[value]; shared {
				return "", fmt.Errorf("branch %d has the %s of %s", n, kind, whose)
			}
			seen[value] = fmt.Sprintf("branch %d", n)
		}
		if err := b.Delete(ctx); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%d values of %d branches differ", len(seen), many), nil
}

// own is what no two branches may share: ids, secrets of the sandbox, random numbers.
func (h *house) own(ctx context.Context, b *person) (map[string]string, error) {
	chance, err := b.run(ctx, "head -c 16 /dev/urandom | base64; cat /proc/sys/kernel/random/uuid; echo $RANDOM$RANDOM$RANDOM$RANDOM")
	if err != nil {
		return nil, err
	}
	lines := strings.Split(strings.TrimSpace(chance), "\n")
	const three = 3
	if len(lines) != three {
		return nil, fmt.Errorf("printed %q", chance)
	}
	own := map[string]string{"session": string(b.ID), "urandom": lines[0], "uuid": lines[1], "shell's chance": lines[2]}
	log, err := b.Events(ctx)
	if err != nil {
		return nil, err
	}
	for _, e := range log {
		switch e.Type { //nolint:exhaustive // those that have ids of their own
		case dormouse.ExecAsked:
			own["exec"] = string(rig.Decode[dormouse.ExecAsk](e).Exec)
		case dormouse.OpStarted:
			own["op"] = string(rig.Decode[dormouse.OpFact](e).Op.ID)
		case dormouse.SandboxStarted:
			own["event"] = string(e.ID)
		}
	}
	var shown struct {
		Threads []struct {
			ID string `json:"id"`
		} `json:"threads"`
	}
	if err := b.Get(ctx, b.Path(""), &shown); err != nil || len(shown.Threads) != 1 {
		return nil, errors.Join(fmt.Errorf("it has %d threads", len(shown.Threads)), err)
	}
	own["thread"] = shown.Threads[0].ID
	var listed struct {
		Snapshots []shot `json:"snapshots"`
	}
	if err := b.Get(ctx, b.Path("/snapshots"), &listed); err != nil || len(listed.Snapshots) != 1 {
		return nil, errors.Join(fmt.Errorf("it has %d snapshots", len(listed.Snapshots)), err)
	}
	own["ref"] = string(listed.Snapshots[0].Ref)
	own["secret"], err = h.secret(b.ID)
	return own, err
}

// secret is what the runner of a session's sandbox is known by.
func (h *house) secret(id dormouse.SessionID) (string, error) {
	found, err := filepath.Glob(filepath.Join(h.keeper.Data, "sandbox", "*", string(id), "*", "secret"))
	if err != nil || len(found) != 1 {
		return "", errors.Join(fmt.Errorf("secrets are at %v", found), err)
	}
	b, err := os.ReadFile(found[0])
	return string(b), err
}

// layersHoldNoSecret: what people put into a workspace is in its snapshots, and
// nothing of ours is.
func layersHoldNoSecret(ctx context.Context, w *World) (string, error) {
	h := w.Strict
	const theirs = "a-password-of-theirs"
	p, err := h.person(ctx, "careless")
	if err != nil {
		return "", err
	}
	defer p.Follower.Close()
	if _, err := p.run(ctx, "echo "+theirs+" > .env; env > environment; cat /proc/self/cmdline /proc/$PPID/cmdline > commands || true"); err != nil {
		return "", err
	}
	if _, err := p.take(ctx); err != nil {
		return "", err
	}
	key, err := os.ReadFile(filepath.Join(h.keeper.Data, "refs.key"))
	if err != nil {
		return "", err
	}
	secret, err := h.secret(p.ID)
	if err != nil {
		return "", err
	}
	found, blobs, err := h.layersWith(theirs, h.Token(), secret, string(key))
	if err != nil {
		return "", err
	}
	if !found[theirs] || len(found) != 1 {
		return "", fmt.Errorf("of what is secret %d were found in %d blobs, theirs among them: %v", len(found), blobs, found[theirs])
	}
	return fmt.Sprintf("%d blobs hold what people put there, and nothing of ours", blobs), p.Delete(ctx)
}

// Token is what clients show.
func (h *house) Token() string { return h.keeper.Token() }

// layersWith looks into every layer for some texts.
func (h *house) layersWith(texts ...string) (found map[string]bool, blobs int, err error) {
	unpack, err := zstd.NewReader(nil)
	if err != nil {
		return nil, 0, err
	}
	defer unpack.Close()
	found = make(map[string]bool)
	err = filepath.WalkDir(filepath.Join(h.keeper.Data, "blobs", "sha256"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if plain, err := unpack.DecodeAll(raw, nil); err == nil { // what is no layer is looked at as it is
			raw = plain
		}
		blobs++
		for _, text := range texts {
			if text != "" && bytes.Contains(raw, []byte(text)) {
				found[text] = true
			}
		}
		return nil
	})
	return found, blobs, err
}
