package play

import (
	"context"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
)

// Kind is a scenario: a session made in some way and driven until it rests.
type Kind struct {
	Name string
	// Create and Flags say how the session and the server are made.
	Create     map[string]any
	Flags, Env []string
	// Collects says that what is not needed any more must be gone in the end.
	Collects bool
	// Servers is how many share the store; 0 means one. Only the first dies, or is
	// frozen by the scenario itself. Steered says that it is asked whenever it can be.
	Servers int
	Freezes bool
	Steered bool
	// Hangs says that the scenario freezes another server than the first, for good.
	Hangs bool
	// First, if not nil, is a prompt that comes with the session.
	First func(*Play) string
	// Play drives the session; the server may die under it at any instant.
	Play func(context.Context, *Play) error
	// Look, if not nil, is what a person looks at once the faults are over.
	Look func(*Play, context.Context) error
	// Decide is what a person says to a turn that a crash left waiting.
	Decide string
	// Hibernating makes the person hibernate the sandbox before deciding.
	Hibernating bool
	// Silent makes people answer nothing.
	Silent bool
	// Family says that the session may spawn others.
	Family bool
	// Only begins the points worth dying at, if not empty: those that are special
	// about a scenario that takes long.
	Only string
	// KillsRunner says that the sandbox dies too, between two servers, and Part
	// what of it is killed.
	KillsRunner bool
	Part        rig.Part
	// Kills says that the scenario itself kills a server, beside the points.
	Kills bool
}

// second ends the name of a scenario with a second server beside.
const second = "+1"

// Beside is the scenario with a second server beside the one that dies.
func (k Kind) Beside() Kind {
	k.Name, k.Servers, k.Steered = k.Name+second, 2, true
	return k
}

// Named finds a scenario.
func Named(name string) (Kind, bool) {
	plain, beside := strings.CutSuffix(name, second)
	all := slices.Concat(alone(), fleetKinds(), gvisorKinds())
	i := slices.IndexFunc(all, func(k Kind) bool { return k.Name == plain })
	switch {
	case i < 0:
		return Kind{}, false
	case beside:
		return all[i].Beside(), true
	}
	return all[i], true
}

// Kinds lists every scenario for a kind of sandboxes; shared says whether several
// servers can share the store.
func Kinds(sandbox string, shared bool) []Kind {
	if sandbox == rig.GVisor {
		return slices.Concat(onGVisor(), gvisorKinds())
	}
	all := alone()
	if shared {
		all = append(all, fleetKinds()...)
	}
	return all
}

// alone are the scenarios of one server.
func alone() []Kind {
	return slices.Concat(modelKinds(), sandboxKinds(), askedKinds(), peopleKinds(), lifeKinds(), errandKinds(), familyKinds(), snapshotKinds(), endKinds())
}

// onGVisor are the scenarios in which the kind of sandbox matters.
func onGVisor() []Kind {
	matters := []string{
		"exec", "task", "write", "edit", "exec-person", "exec-person-lost", "hibernate", "sleep", "exec-lost", "runner-lost", "delete", "terminate",
		"snapshot", "snapshot-asleep", "snapshot-first", "snapshot-turns", "snapshot-branch", "snapshot-forget", "snapshot-long", "snapshot-collect",
	}
	return slices.DeleteFunc(alone(), func(k Kind) bool { return !slices.Contains(matters, k.Name) })
}

// gvisorKinds are the scenarios that other sandboxes have no part in.
func gvisorKinds() []Kind {
	run := prompts(func(p *Play) string { return p.Script(rig.Bash(p.Marks("0.03")), rig.Say("it ran")) })
	return append(slices.Concat(counterKinds(), cutKinds()),
		Kind{Name: "gofer-lost", Create: warm(), Play: run, KillsRunner: true, Part: rig.Gofer},
		Kind{Name: "both-lost", Create: warm(), Play: run, KillsRunner: true, Part: rig.Both},
		Kind{Name: "notes-corrupt", Create: warm(), Play: run, KillsRunner: true, Part: rig.Notes})
}

func warm(more ...any) map[string]any {
	options := map[string]any{"warm": true}
	for i := 0; i+1 < len(more); i += 2 {
		name, _ := more[i].(string)
		options[name] = more[i+1]
	}
	return options
}

func modelKinds() []Kind {
	said := strings.Repeat("so it goes on and on ", 4)
	return []Kind{
		{Name: "model-stream", Play: prompts(func(p *Play) string {
			return p.Script(rig.Step{"text": said, "chunks": 5, "chunk_delay_ms": 2})
		})},
		{Name: "model-whole", Play: prompts(func(p *Play) string {
			return p.Script(rig.Step{"text": said, "stream": false, "delay_ms": 3})
		})},
		{Name: "model-keyed", Create: map[string]any{"model": "scripted-keyed"}, Play: prompts(func(p *Play) string {
			return p.Script(rig.Step{"text": said, "chunks": 5, "chunk_delay_ms": 2})
		})},
		{Name: "model-fault", Play: prompts(func(p *Play) string {
			return p.Script(rig.Step{"text": said, "error": 529, "retry_after_ms": 5, "times": 1})
		})},
		{Name: "model-big", Play: prompts(func(p *Play) string {
			return p.Script(rig.Step{"text": strings.Repeat(said, 900), "chunks": 3})
		})},
		{Name: "prompt-big", Play: prompts(func(p *Play) string {
			return strings.Repeat("a long story ", 6000) + p.Script(rig.Say("short answer"))
		})},
		{Name: "queue", Play: prompts(
			func(p *Play) string { return p.Script(rig.Step{"text": "one", "delay_ms": 10}) },
			func(p *Play) string { return p.Script(rig.Say("two")) },
			func(p *Play) string { return p.Script(rig.Say("three")) })},
		{Name: "create-prompt", First: func(p *Play) string { return p.Script(rig.Say("at once")) }, Play: prompts()},
	}
}

// prompts sends prompts one after the other, without waiting for their turns.
func prompts(contents ...func(*Play) string) func(context.Context, *Play) error {
	return func(ctx context.Context, p *Play) error {
		for i, content := range contents {
			if err := p.Prompt(ctx, "p"+string(rune('0'+i)), content(p)); err != nil {
				return err
			}
		}
		return nil
	}
}

func sandboxKinds() []Kind {
	exec := func(p *Play) string { return p.Script(rig.Bash(p.Marks("0.03")), rig.Say("it ran")) }
	task := func(p *Play) string {
		return p.Script(rig.Use("task", map[string]any{"command": p.Marks("0.05")}), rig.Say("it runs"))
	}
	write := func(p *Play) string {
		return p.Script(rig.Use("write", map[string]any{"file_path": p.File(), "content": "new content"}), rig.Say("written"))
	}
	edit := func(p *Play) string {
		file := p.File()
		seed := filepath.Join(filepath.Dir(file), ".seed-"+filepath.Base(file))
		// A link puts the file there without counting as a write.
		plant := "printf 'one word\\n' >" + seed + "; [ -e " + file + " ] || ln " + seed + " " + file
		return p.Script(rig.Bash(plant),
			rig.Use("edit", map[string]any{"file_path": file, "old_string": "word", "new_string": "wordword"}), rig.Say("edited"))
	}
	look := func(tool, pattern string) func(context.Context, *Play) error {
		return func(ctx context.Context, p *Play) error {
			if _, err := p.Put("story", "once upon a time"); err != nil {
				return err
			}
			return prompts(func(p *Play) string {
				return p.Script(rig.Use(tool, map[string]any{"pattern": pattern, "path": p.Witness.Dir}), rig.Say("found"))
			})(ctx, p)
		}
	}
	mixed := func(p *Play) string {
		return p.Script(
			rig.Step{"text": "both", "tools": []map[string]any{
				{"name": "bash", "input": map[string]any{"command": p.Marks("0.01")}},
				{"name": "write", "input": map[string]any{"file_path": p.File(), "content": "mixed"}},
			}},
			rig.Bash(p.Marks("0")), rig.Say("all done"))
	}
	return []Kind{
		{Name: "exec", Create: warm(), Play: prompts(exec)},
		{Name: "exec-cold", Play: prompts(exec)},
		{Name: "exec-keyed", Create: warm("model", "scripted-keyed"), Play: prompts(exec)},
		{Name: "exec-big", Create: warm(), Play: prompts(func(p *Play) string {
			return p.Script(rig.Bash(p.Marks("0")+"; head -c 200000 /dev/zero | tr '\\0' x"), rig.Say("much"))
		})},
		{Name: "task", Create: warm(), Play: prompts(task)},
		{Name: "write", Create: warm(), Play: prompts(write)},
		{Name: "edit", Create: warm(), Play: prompts(edit)},
		{Name: "glob", Create: warm(), Play: look("glob", "**/story")},
		{Name: "grep", Create: warm(), Play: look("grep", "upon")},
		{Name: "read", Create: warm(), Play: func(ctx context.Context, p *Play) error {
			path, err := p.Put("story", "once upon a time")
			if err != nil {
				return err
			}
			return prompts(func(p *Play) string {
				return p.Script(rig.Use("read", map[string]any{"file_path": path}), rig.Say("read"))
			})(ctx, p)
		}},
		{Name: "mixed", Create: warm(), Play: prompts(mixed)},
		{Name: "exec-lost", Create: warm(), Play: prompts(exec), KillsRunner: true},
		{Name: "task-lost", Create: warm(), Play: prompts(task), KillsRunner: true},
		{Name: "write-lost", Create: warm(), Play: prompts(write), KillsRunner: true},
		{Name: "edit-lost", Create: warm(), Play: prompts(edit), KillsRunner: true},
		{Name: "runner-lost", Create: warm(), Play: func(ctx context.Context, p *Play) error {
			if err := p.Prompt(ctx, "p0", p.Script(rig.Bash(p.Marks("0.2")), rig.Say("it was lost"))); err != nil {
				return err
			}
			if err := p.Begun(ctx); err != nil {
				return err
			}
			p.Keeper.KillRunners()
			return nil
		}},
		{Name: "sleep", Create: warm("sleep_after", "40ms"), Play: func(ctx context.Context, p *Play) error {
			if err := p.Prompt(ctx, "p0", exec(p)); err != nil {
				return err
			}
			if _, err := p.Until(ctx, func(s rig.Shown) bool { return s.Phase == dormouse.PhaseHibernated }); err != nil {
				return err
			}
			return p.Prompt(ctx, "p1", exec(p))
		}},
		{Name: "hibernate", Create: warm(), Play: func(ctx context.Context, p *Play) error {
			if err := p.Prompt(ctx, "p0", exec(p)); err != nil {
				return err
			}
			if err := p.Begun(ctx); err != nil {
				return err
			}
			cold := func(s rig.Shown) bool { return s.Sandbox.Phase != "active" }
			if err := ignoreConflict(p.Insist(ctx, "hibernate", nil, cold)); err != nil {
				return err
			}
			if err := p.Settle(ctx); err != nil {
				return err
			}
			return ignoreConflict(p.Insist(ctx, "wake", nil, func(s rig.Shown) bool { return s.Sandbox.Phase == "active" }))
		}},
	}
}
