package runner

// Priority is told when a client waits for a runner, so that a driver can give the
// sandbox a higher CPU priority meanwhile.
type Priority interface {
	// Wait is called when a client begins to wait. The client calls done when it
	// stops waiting.
	Wait() (done func())
	// Touch is called when a client writes to a stream, and so may expect an answer.
	Touch()
}

// noPriority is the Priority of drivers that have none.
type noPriority struct{}

func (noPriority) Wait() (done func()) { return func() {} }
func (noPriority) Touch()              {}
