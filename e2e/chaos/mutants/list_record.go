package mutants

import "strings"

// recordMutants break the order in which things are recorded, done and told.
func recordMutants() []mutant {
	return []mutant{
		{
			name: "op_late", rule: "an op is recorded before any byte of it leaves",
			notice: inCases{"sqlite", opSent()},
			patches: []patch{
				{"agent/call.go", "if t.view.Generation == 0 {", "if t.view.Generation >= 0 {"},
				{"agent/perform.go", "if len(t.view.Uses) != 1 || ", "if len(t.view.Uses) >= 0 || "},
				{"agent/perform.go", `	if !open {
		crash.At(crash.OpStarting)
`, `	if err := box.Start(ctx, call); err != nil {
		return runner.Result{}, err
	}
	if !open {
		crash.At(crash.OpStarting)
`},
			},
		},
		{
			name: "split_end", rule: "prompt-done and turn-end are one transaction",
			notice: inCases{"sqlite", commits("model-whole")}, patches: []patch{splitAt("TurnEnded")},
		},
		{
			name: "split_wakeup", rule: "a wake-up and the prompt it brings are one transaction",
			notice: inCases{"sqlite", commits("wakeup")}, patches: []patch{splitAt("PromptQueued")},
		},
		{
			name: "please_retry", rule: "of an op that may have run nobody is told to try again",
			notice:  inPackage{goTest{"session", "TestOnlyACallThatCannotHaveRunIsToldToBeRetried"}},
			patches: []patch{{"session/law/ops.go", "		if op, open := d.OpFor(use.ID); open {\n", "		if op, open := d.OpFor(use.ID); open && doubt {\n"}},
		},
		{
			name: "unreached_op", rule: "no op is recorded for a sandbox that was not reached, which would be called unknown",
			notice: inPackage{goTest{"session", "TestNoOpIsRecordedForASandboxThatWasNotReached"}},
			patches: []patch{
				{"session/law/execs.go", "		if d.c.Reached != d.Sandbox.Generation {\n", "		if d.Sandbox.Generation == 0 {\n"},
				{"session/law/execs.go", "d.Sandbox.Phase != SandboxActive || d.c.Reached != d.Sandbox.Generation:", "d.Sandbox.Phase != SandboxActive:"},
			},
		},
		{
			name: "chunk_early", rule: "a chunk is stored before anybody is shown it",
			notice: inPackage{goTest{"session", "TestAChunkIsStoredBeforeItIsShown"}},
			patches: []patch{
				{"session/actor/journal.go", "		if err := j.a.appendBatch(b); err != nil {\n", "		" + showChunk + "		if err := j.a.appendBatch(b); err != nil {\n"},
				{"session/actor/journal.go", "			return err\n		}\n		" + showChunk, "			return err\n		}\n"},
			},
		},
		{
			name: "ids_not_looked_up", rule: "ids that clients gave are looked up before anything is decided",
			notice: inPackage{goTest{"session", "TestTheSameClientIDIsOnePrompt"}},
			patches: []patch{{
				"session/actor/commit.go",
				"if c.Given, err = a.log.ByClientID(", "if _, err = a.log.ByClientID(",
			}},
		},
		{
			name: "no_snapshot_before", rule: "a turn begins after the snapshot of what people did before it",
			notice:  inPackage{goTest{"session", "TestRevertLeavesWhatPeopleDidBeforeTheTurn"}},
			patches: []patch{{"session/law/machine.go", "	waits = waits || beforeTurn(s) > 0\n", ""}},
		},
		{
			name: "child_end_told_once", rule: "a parent is told of its child's end until it has recorded it",
			notice: inPackage{goTest{"session", "TestAChildsEndIsToldUntilItsParentHasRecordedIt"}},
			patches: []patch{{"session/actor/children.go", `			a.notifyingParent = false
			if err != nil {
				return err
			}
			return a.commitOwn(ctx, law.ParentTold{})
`, `			a.notifyingParent = false
			return a.commitOwn(ctx, law.ParentTold{})
`}},
		},
	}
}

const showChunk = "j.a.feeds.Show(j.a.id, dormouse.Delta{Thread: j.thread, Op: open.ID, Text: text, At: at, First: first})\n"

// splitAt has a decision written in two halves, the second beginning with an event.
func splitAt(event string) patch {
	const whole = "	write := func() error { return a.deps.Store.Append(a.lease.Writes(), b) }\n"
	const halves = `	write := func() error {
		b := b
		for i, e := range b.Events {
			if e.Type != dormouse.EVENT || i == 0 {
				continue
			}
			_, rows := law.Project(a.state, b.Events[:i])
			first := store.Batch{Session: b.Session, Epoch: b.Epoch, After: b.After, Events: b.Events[:i], Rows: &rows}
			if err := a.deps.Store.Append(a.lease.Writes(), first); err != nil {
				return err
			}
			b.After, b.Events = b.Events[i-1].Seq, b.Events[i:]
			break
		}
		return a.deps.Store.Append(a.lease.Writes(), b)
	}
`
	return patch{"session/actor/commit.go", whole, strings.Replace(halves, "EVENT", event, 1)}
}
