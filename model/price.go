package model

import (
	"math"

	"github.com/dormouse-run/dormouse"
)

// Price is what a model costs, in dollars per million tokens, which is the same
// as millionths of a dollar per token.
type Price struct {
	Input, Output, CacheRead, CacheWrite float64
}

// Nanos is the price as an op keeps it.
func (p Price) Nanos() dormouse.ModelPrice {
	const thousand = 1000
	n := func(micros float64) int64 { return int64(math.Round(micros * thousand)) }
	return dormouse.ModelPrice{Input: n(p.Input), Output: n(p.Output), CacheRead: n(p.CacheRead), CacheWrite: n(p.CacheWrite)}
}

// Micros is what a call cost, in millionths of a dollar.
func (p Price) Micros(u dormouse.ModelUsage) int64 {
	return int64(math.Round(p.Input*float64(u.InputTokens) + p.Output*float64(u.OutputTokens) +
		p.CacheRead*float64(u.CacheReadInputTokens) + p.CacheWrite*float64(u.CacheCreationInputTokens)))
}
