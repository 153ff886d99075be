package dormouse

// Delta is a fragment of a reply or of a tool's output, or says how far something is.
type Delta struct {
	Thread ThreadID `json:"thread,omitempty"`
	Op     OpID     `json:"op,omitempty"`
	Use    EventID  `json:"use,omitempty"`
	Text   string   `json:"text"`
	// At is where in the reply a fragment begins, and First how many bytes of it are
	// of the reply's first block.
	At    int `json:"at,omitempty"`
	First int `json:"first,omitempty"`
	// Fetched says how much of the files of a snapshot has come.
	Fetched *Fetched `json:"fetched,omitempty"`
}

// Fetched is how many bytes of how many have come.
type Fetched struct {
	Bytes int64 `json:"bytes"`
	Of    int64 `json:"of"`
}
