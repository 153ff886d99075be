//go:build !mutant_postgres_no_epoch

package postgres

// sameEpoch is what makes a writer who was replaced be refused.
const sameEpoch = `s.epoch = b.epoch`
