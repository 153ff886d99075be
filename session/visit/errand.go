package visit

import "github.com/dormouse-run/dormouse"

// Errand is a request about a sandbox that one server makes of another for its visitor:
// what Ask or Stream says, or only whether the sandbox is there.
type Errand struct {
	Session dormouse.SessionID `json:"session"`
	// Wake says that a sandbox is started if there is none.
	Wake bool `json:"wake,omitempty"`
	// Generation is the sandbox that is meant; zero is whichever there is.
	Generation uint64   `json:"generation,omitempty"`
	Ask        Ask      `json:"ask,omitempty"`
	Terminal   Terminal `json:"terminal,omitzero"`
	Stream     *Stream  `json:"stream,omitempty"`
}

// Ask is what an errand asks a sandbox.
type Ask string

// What can be asked. AskResize and AskEndTerminal are about Errand.Terminal.
const (
	AskNothing     Ask = ""
	AskPorts       Ask = "ports"
	AskUsage       Ask = "usage"
	AskTerminals   Ask = "terminals"
	AskResize      Ask = "resize"
	AskEndTerminal Ask = "end_terminal"
)

// Findings are what an errand brings back.
type Findings struct {
	Generation uint64           `json:"generation"`
	Ports      []Port           `json:"ports,omitempty"`
	Usage      Usage            `json:"usage,omitzero"`
	Terminals  []TerminalReport `json:"terminals,omitempty"`
}
