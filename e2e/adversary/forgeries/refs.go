package forgeries

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dormouse-run/dormouse/snapshot/snapshottest"
)

// tools are those that take a ref.
var tools = []string{"workspace_restore", "workspace_branch", "workspace_delete_snapshot"}

// forged are refs that an attacker made of a good one.
func forged(h *house) map[string]string {
	mine, others := string(h.me.shot.Ref), string(h.other.shot.Ref)
	swap := func(ref, old, with string) string { return strings.Replace(ref, old, with, 1) }
	return map[string]string{
		"others-snapshot-as-ours":   swap(others, string(h.other.ID), string(h.me.ID)),
		"ours-as-others":            swap(mine, string(h.me.ID), string(h.other.ID)),
		"another-snapshot":          swap(mine, string(h.me.shot.ID), string(h.other.shot.ID)),
		"one-that-nobody-has":       swap(mine, string(h.me.shot.ID), "snap_00000000000000000000000000"),
		"with-a-word-for-the-guard": swap(others, `"ref":{`, `"ref":{"allowCrossSession":true,`),
	}
}

func refs() []Case {
	var cases []Case
	for _, name := range slices.Sorted(maps.Keys(snapshottest.HostileRefs())) {
		words := strings.NewReplacer(" ", "-", ",", "").Replace(name)
		cases = append(cases, Case{"agent-ref-" + words, "a ref in a tool call that is none", func(ctx context.Context, w *World) (string, error) {
			return w.Strict.me.tries(ctx, snapshottest.HostileRefs()[name], false)
		}})
	}
	for _, name := range []string{
		"others-snapshot-as-ours", "ours-as-others", "another-snapshot", "one-that-nobody-has", "of-another-server", "with-a-word-for-the-guard",
	} {
		cases = append(cases, Case{"agent-ref-forged-" + name, "a ref in a tool call that somebody made of another", func(ctx context.Context, w *World) (string, error) {
			var seen []string
			for _, h := range []*house{w.Strict, w.Lenient} {
				ref := forged(h)[name]
				if name == "of-another-server" {
					ref = string(w.Strict.me.shot.Ref)
					if h == w.Strict {
						ref = string(w.Lenient.me.shot.Ref)
					}
				}
				if name == "with-a-word-for-the-guard" && h == w.Lenient {
					continue // this tenant has the right to
				}
				said, err := h.me.tries(ctx, ref, name != "with-a-word-for-the-guard")
				if err != nil {
					return "", err
				}
				seen = append(seen, said)
			}
			return strings.Join(seen, "; "), nil
		}})
	}
	return append(cases, Case{"agent-ref-replayed", "a ref whose snapshot was deleted", replayed})
}

// tries uses a ref in every way an agent can. Each must go wrong.
func (p *person) tries(ctx context.Context, ref string, cross bool) (string, error) {
	var input any = json.RawMessage(ref)
	if !json.Valid([]byte(ref)) {
		input = ref // whatever calls tools writes JSON
	}
	said := ""
	for _, tool := range tools {
		in := map[string]any{"ref": input}
		if cross {
			in["allowCrossSession"] = true
		}
		text, failed, err := p.use(ctx, tool, in)
		if err != nil {
			return "", err
		}
		if !failed {
			return "", fmt.Errorf("%s of %.200s said %q", tool, ref, text)
		}
		said = text
	}
	return said, nil
}

func replayed(ctx context.Context, w *World) (string, error) {
	p := w.Strict.me
	gone, err := p.take(ctx)
	if err != nil {
		return "", err
	}
	if said, failed, err := p.use(ctx, "workspace_delete_snapshot", map[string]any{"ref": gone.Ref}); failed || err != nil {
		return "", errors.Join(errors.New(said), err)
	}
	for _, tool := range tools[:2] {
		said, failed, err := p.use(ctx, tool, map[string]any{"ref": gone.Ref})
		if err != nil {
			return "", err
		}
		if !failed {
			return "", fmt.Errorf("%s of what was deleted said %q", tool, said)
		}
	}
	if said, failed, err := p.use(ctx, tools[2], map[string]any{"ref": gone.Ref}); failed || err != nil {
		return "", errors.Join(fmt.Errorf("to delete it twice said %q", said), err)
	}
	return w.Strict.byID(ctx, string(gone.ID))
}
