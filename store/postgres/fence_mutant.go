//go:build mutant_postgres_no_epoch

package postgres

// sameEpoch is wrong on purpose: a test that lets a server come back from the
// dead must notice it.
const sameEpoch = `true`
