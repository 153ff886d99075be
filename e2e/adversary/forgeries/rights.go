package forgeries

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
)

func rights() []Case {
	return []Case{
		{"others-as-missing", "whether a snapshot of another session can be told from one that is not there", othersAsMissing},
		{"others-without-policy", "a good ref of another session, with the word but not the policy", func(ctx context.Context, w *World) (string, error) {
			return w.Strict.me.tries(ctx, string(w.Strict.other.shot.Ref), true)
		}},
		{"others-without-word", "a good ref of another session, with the policy but not the word", func(ctx context.Context, w *World) (string, error) {
			return w.Lenient.me.tries(ctx, string(w.Lenient.other.shot.Ref), false)
		}},
		{"others-with-both", "a good ref of another session with policy and word, which the log must tell", othersWithBoth},
		{"others-gone", "a ref of a session that was deleted, with policy and word", othersGone},
	}
}

// othersAsMissing compares what is said of a snapshot of another session with what is
// said of none.
func othersAsMissing(ctx context.Context, w *World) (string, error) {
	h := w.Strict
	const none = "snap_00000000000000000000000000"
	seen := ""
	for _, below := range []string{"", "/diff", "/export"} {
		var said [2]string
		for i, id := range []string{string(h.other.shot.ID), none} {
			status, err := h.Once(ctx, http.MethodGet, h.me.Path("/snapshots/"+id+below), nil, nil)
			said[i] = strings.ReplaceAll(fmt.Sprint(status, err), id, "ID")
		}
		if said[0] != said[1] {
			return "", fmt.Errorf("of others' it is said %q, and of none %q", said[0], said[1])
		}
		seen = said[0]
	}
	var said [2]string
	for i, ref := range []string{string(h.other.shot.Ref), forged(h)["ours-as-others"]} {
		text, _, err := h.me.use(ctx, "workspace_restore", map[string]any{"ref": rawJSON(ref), "allowCrossSession": true})
		if err != nil {
			return "", err
		}
		said[i] = strings.NewReplacer(string(h.other.shot.ID), "ID", string(h.me.shot.ID), "ID").Replace(text)
	}
	if said[0] != said[1] {
		return "", fmt.Errorf("of others' ref it is said %q, and of a forged one %q", said[0], said[1])
	}
	return seen + "; " + said[0], nil
}

// othersWithBoth is allowed, and audited.
func othersWithBoth(ctx context.Context, w *World) (string, error) {
	h := w.Lenient
	const audit = "an agent uses a snapshot of another session"
	before := strings.Count(h.said(), audit)
	text, failed, err := h.me.use(ctx, "workspace_restore", map[string]any{"ref": h.other.shot.Ref, "allowCrossSession": true})
	if err != nil || failed {
		return "", fmt.Errorf("it may, and was told %q: %w", text, err)
	}
	got, err := h.me.run(ctx, "cat own")
	if err != nil {
		return "", err
	}
	if got != h.other.name+"\n" {
		return "", fmt.Errorf("it has the files %q", got)
	}
	log := h.said()
	last := log[max(0, strings.LastIndex(log, audit)):]
	if strings.Count(log, audit) != before+1 || !strings.Contains(last, string(h.other.ID)) || !strings.Contains(last, string(h.other.shot.ID)) || !strings.Contains(last, string(h.me.ID)) {
		return "", fmt.Errorf("the log does not tell: %s", oneLine(last))
	}
	return "it was let, and the log tells", h.me.Repeat(ctx, http.MethodPost, h.me.Path("/restore"), map[string]any{"snapshot": h.me.shot.ID}, nil)
}

// othersGone: what a session has lost it cannot have through others, and a session
// that branched in time keeps what it has.
func othersGone(ctx context.Context, w *World) (string, error) {
	h := w.Lenient
	p, err := h.person(ctx, "gone")
	if err != nil {
		return "", err
	}
	defer p.Follower.Close()
	b, err := p.branch(ctx)
	if err != nil {
		return "", err
	}
	if err := p.Delete(ctx); err != nil {
		return "", err
	}
	said, err := h.me.tries(ctx, string(p.shot.Ref), true)
	if err != nil {
		return "", err
	}
	got, err := b.run(ctx, "cat own")
	if err == nil && got != "gone\n" {
		err = fmt.Errorf("the branch has the files %q", got)
	}
	return said, err
}

// said is all that the server has said.
func (h *house) said() string {
	b, _ := os.ReadFile(h.keeper.Log) // nothing yet is nothing
	return string(b)
}
