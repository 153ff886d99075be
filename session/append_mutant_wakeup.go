//go:build mutant_split_wakeup

package session

import "github.com/dormouse-run/dormouse"

// splitsAt breaks the rule that a wake-up and the prompt it brings are one
// transaction.
const splitsAt = dormouse.PromptQueued
