//go:build mutant_runner_no_epoch

package runner

const ChecksEpoch = false
