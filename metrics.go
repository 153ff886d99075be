package dormouse

// Metrics is what a session has done and cost so far. It is folded from the log
// like everything else.
type Metrics struct {
	// ActiveSeconds is how long turns have run, whatever ran beside them.
	ActiveSeconds float64 `json:"active_seconds"`
	// Messages counts the messages of people and of the agent, ToolCalls the tool calls
	// of the agent.
	Messages  int64 `json:"messages"`
	ToolCalls int64 `json:"tool_calls"`
	ModelUsage
	// CostMicros is what the model calls cost, in millionths of a dollar; 0 if
	// the prices are not known.
	CostMicros int64 `json:"cost_micros"`
}
