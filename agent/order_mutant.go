//go:build mutant_op_late

package agent

// startsLate breaks the first rule of the journal on purpose, so that the crash
// matrix can show that it would notice.
const startsLate = true
