//go:build !mutant_runner_no_epoch

package runner

// ChecksEpoch is false only in the mutant that the tests must catch.
const ChecksEpoch = true
