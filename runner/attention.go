package runner

// Attention is told when somebody waits for what a runner does. Whoever can make
// a sandbox quicker then does.
type Attention interface {
	// Wait says that somebody waits from now on, until he calls done.
	Wait() (done func())
	// Touch says that somebody writes to a stream, and may wait for an answer.
	Touch()
}

// nobody pays no attention.
type nobody struct{}

func (nobody) Wait() (done func()) { return func() {} }
func (nobody) Touch()              {}
