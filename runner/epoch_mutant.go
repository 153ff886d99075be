//go:build mutant_runner_no_epoch

package runner

const checksEpoch = false
