//go:build mutant_split_end

package session

import "github.com/dormouse-run/dormouse"

// splitsAt breaks the rule that prompt-done and turn-end are one transaction.
const splitsAt = dormouse.TurnEnded
