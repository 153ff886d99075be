//go:build !mutant_op_late

package agent

// startsLate is false: an op is recorded before any byte of it leaves.
const startsLate = false
