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

// Same reports whether both fences name the same sandbox.
func (f Fence) Same(g Fence) bool {
	return f.Session == g.Session && f.Generation == g.Generation
}

// Bind returns the fence of a runner that had f and is bound to g. A runner is told
// from outside which sandbox it is: a memory image may wake as another one, for which
// the epochs it knew mean nothing.
func (f Fence) Bind(g Fence) (Fence, error) {
	if f.Same(g) && g.Epoch < f.Epoch {
		return f, ErrStale
	}
	return g, nil
}

// Admit returns the fence of a runner that had f after a request under g.
func (f Fence) Admit(g Fence) (Fence, error) {
	if !f.Same(g) {
		return f, ErrForeign
	}
	return f.Bind(g)
}
