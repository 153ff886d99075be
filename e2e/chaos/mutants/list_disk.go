package mutants

// diskMutants believe that something is on the disk, or as it was written.
func diskMutants() []mutant {
	return []mutant{
		{
			name: "sync_normal", rule: "a commit waits for the disk",
			notice:  fromOutside{"TestB09AcknowledgedPromptsSurviveAPowerCut"},
			patches: []patch{{"store/sqlite/conn.go", `"synchronous(FULL)"`, `"synchronous(NORMAL)"`}},
		},
		{
			name: "blob_not_synced", rule: "a blob is synced before it has its name",
			notice:  inPackage{goTest{"blob/dir", "TestPutMustHaveMadeItDurableWhenItReturns"}},
			patches: []patch{{"internal/atomicfile/draft.go", "if err := d.file.Sync(); err != nil {", "if err := error(nil); err != nil {"}},
		},
		{
			name: "rows_kept", rule: "what a transaction took back is not known to be written",
			notice:  inPackage{goTest{"store/sqlite", "TestAppendAfterARollbackWritesEveryRow"}},
			patches: []patch{{"store/sqlite/writer.go", "	clear(w.conn.rows)\n", ""}},
		},
		{
			name: "sum_not_verified", rule: "a row is held against its checksum when it is read",
			notice:  inPackage{goTest{"store/sqlite", "TestARowThatIsNotAsItWasWrittenMustBeDamage"}},
			patches: []patch{{"store/damage.go", "if f.Sum != nil && *f.Sum != Sum(id, f.Event) {", "if f.Sum != nil && false {"}},
		},
		{
			name: "image_not_synced", rule: "memory and files are on the disk before a sandbox that is frozen ends",
			notice:  inPackage{goTest{"sandbox/gvisor", "TestSleepSurvivesAPowerCut"}},
			patches: []patch{{"sandbox/gvisor/memory_image.go", "durable <- errors.Join(syncImage(dir), v.Sync())", "durable <- nil"}},
		},
	}
}
