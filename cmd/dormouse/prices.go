//go:build !windows

package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/dormouse-run/dormouse/model"
)

// parsePrices reads what models cost: each as MODEL=IN/OUT, in dollars per million
// tokens, or as MODEL=IN/OUT/READ/WRITE if tokens that a cache gave or took have
// prices of their own.
func parsePrices(given []string) (map[string]model.Price, error) {
	prices := make(map[string]model.Price, len(given))
	for _, price := range given {
		name, amounts, ok := strings.Cut(price, "=")
		parts := strings.Split(amounts, "/")
		if !ok || name == "" || len(parts) != 2 && len(parts) != 4 {
			return nil, fmt.Errorf("%q is not MODEL=IN/OUT or MODEL=IN/OUT/READ/WRITE, in dollars per million tokens", price)
		}
		if _, twice := prices[name]; twice {
			return nil, fmt.Errorf("model %q has two prices", name)
		}
		var dollars []float64
		for _, part := range parts {
			d, err := strconv.ParseFloat(part, 64)
			if err != nil || d < 0 || math.IsInf(d, 0) || math.IsNaN(d) {
				return nil, fmt.Errorf("%q in %q is not an amount of dollars", part, price)
			}
			dollars = append(dollars, d)
		}
		p := model.Price{Input: dollars[0], Output: dollars[1], CacheRead: dollars[0], CacheWrite: dollars[0]}
		if len(dollars) == 4 {
			p.CacheRead, p.CacheWrite = dollars[2], dollars[3]
		}
		prices[name] = p
	}
	return prices, nil
}
