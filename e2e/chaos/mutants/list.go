package mutants

import "slices"

// all lists the mutants: what is recorded, who may act on it, and what is on the
// disk.
func all() []mutant { return slices.Concat(recordMutants(), leaseMutants(), diskMutants()) }
