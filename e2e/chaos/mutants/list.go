package mutants

import "slices"

// all lists the mutants: of what is recorded, of which server may act on it, and
// of what is on the disk.
func all() []mutant { return slices.Concat(recordMutants(), leaseMutants(), diskMutants()) }
