//go:build !mutant_runner_no_epoch

package runner

// checksEpoch is false only in the mutant that the tests must catch.
const checksEpoch = true
