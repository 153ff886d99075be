package mutants

// leaseMutants let a server act after it has lost the right to.
func leaseMutants() []mutant {
	return []mutant{
		{
			name: "postgres_no_epoch", rule: "an append under an epoch that is over is refused",
			notice: inCases{"postgres", stale()},
			patches: []patch{
				{"store/postgres/statement.go", "WHERE s.id = b.id AND s.epoch = b.epoch AND", "WHERE s.id = b.id AND"},
				{"store/postgres/statement.go", "ON s.id = b.id AND s.epoch = b.epoch AND", "ON s.id = b.id AND"},
			},
		},
		{
			name: "runner_no_epoch", rule: "a runner refuses an epoch older than one it has met",
			notice: inPackage{goTest{"runner/inside", "TestOlderEpochIsRefusedAndActsNoMore"}},
			patches: []patch{
				{"runner/fence.go", "if f.Same(g) && g.Epoch < f.Epoch {", "if f.Same(g) && g.Epoch < 0 {"},
				{"runner/inside/runner.go", "	if r.bound != k {\n", "	if r.bound == nil {\n"},
			},
		},
		{
			name: "no_lease_after_send", rule: "who was paused while a step was recorded does not act on it",
			notice:  inPackage{goTest{"session/actor", "TestWhoWasPausedWhileItSentActsNoMore"}},
			patches: []patch{{"session/actor/journal.go", "	return j.a.lease.Holds()\n", "	return nil\n"}},
		},
		{
			name: "no_lease_before_work", rule: "nothing is done to a sandbox under a lease that is over",
			notice:  inPackage{goTest{"session/actor", "TestWhoWasPausedBeforeItWorksOnASandboxLeavesItAlone/work"}},
			patches: []patch{{"session/actor/sandbox.go", "		if err := a.lease.Holds(); err != nil {\n", "		if err := error(nil); err != nil {\n"}},
		},
	}
}
