package dormouse

// ModelPrice is what a token costs, in billionths of a dollar.
type ModelPrice struct {
	Input      int64 `json:"input,omitempty"`
	Output     int64 `json:"output,omitempty"`
	CacheRead  int64 `json:"cache_read,omitempty"`
	CacheWrite int64 `json:"cache_write,omitempty"`
}

// Micros is what a call cost, in millionths of a dollar.
func (p ModelPrice) Micros(u ModelUsage) int64 {
	const half, thousand = 500, 1000
	return (p.Input*u.InputTokens + p.Output*u.OutputTokens + p.CacheRead*u.CacheReadInputTokens + p.CacheWrite*u.CacheCreationInputTokens + half) / thousand
}

// Tokens is about how many tokens a text of that many bytes has.
func Tokens(bytes int) int64 {
	const each = 4
	return int64((bytes + each - 1) / each)
}

// Spent is what a model call has used that was cut off when that much of its reply was
// seen: what its provider had counted by then, and an estimate of what it had not.
func (o Op) Spent(seen string, counted ModelUsage) (u ModelUsage, estimated bool) {
	u = counted
	if counted == (ModelUsage{}) {
		u.InputTokens, estimated = o.Asks, true
	}
	if said := Tokens(len(seen)); said > u.OutputTokens { // a provider counts a reply when it is whole
		u.OutputTokens, estimated = said, true
	}
	return u, estimated
}
