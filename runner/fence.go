package runner

import (
	"fmt"

	"github.com/dormouse-run/dormouse"
)

// Validate refuses a fence that names no sandbox.
func (f Fence) Validate() error {
	if err := f.Session.Validate(); err != nil {
		return fmt.Errorf("fence: %w", err)
	}
	if f.Generation == 0 {
		return fmt.Errorf("fence has no generation: %w", dormouse.ErrInvalid)
	}
	return nil
}

// Same reports whether both fences are of one sandbox.
func (f Fence) Same(g Fence) bool {
	return f.Session == g.Session && f.Generation == g.Generation
}

// Bind returns what a runner that knew f knows once it is told g. Which
// sandbox it is, a runner is told from outside: a memory image wakes as
// another, and what it knew of epochs then means nothing.
func (f Fence) Bind(g Fence) (Fence, error) {
	if f.Same(g) && g.Epoch < f.Epoch {
		return f, ErrStale
	}
	return g, nil
}

// Admit returns what a runner that knew f knows after a request under g.
func (f Fence) Admit(g Fence) (Fence, error) {
	if !f.Same(g) {
		return f, ErrForeign
	}
	return f.Bind(g)
}
