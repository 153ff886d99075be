package play

import (
	"context"
	"fmt"
	"net/http"
	"sync"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/internal/sleep"
)

// Asked is a command for a person to ask for: it leaves two marks, says something
// and ends in a way of its own.
func (p *Play) Asked(between string) rig.Asked {
	marks := p.Marks(between)
	a := rig.Asked{ClientID: p.lastNonce(), Prints: "this is " + p.lastNonce() + "\n", Exit: 3}
	a.Command = fmt.Sprintf("%s; echo this is %s; exit %d", marks, p.lastNonce(), a.Exit)
	return a
}

// askedKinds are about commands that people run beside the agent.
func askedKinds() []Kind {
	// The same request once more gets the same answer, and has no further effect.
	twice := func(ctx context.Context, p *Play) error {
		a := p.Asked("0.03")
		for range 2 {
			if _, err := p.Ask(ctx, a); err != nil {
				return err
			}
		}
		return nil
	}
	return []Kind{
		{Name: "exec-person", Create: warm(), Play: twice},
		{Name: "exec-person-cold", Play: twice},
		{Name: "exec-person-lost", Create: warm(), Play: twice, KillsRunner: true},
		{Name: "exec-person-end", Create: warm(), Play: func(ctx context.Context, p *Play) error {
			a := p.Asked("0.5")
			var asking sync.WaitGroup
			var err error
			asking.Go(func() { _, err = p.Ask(ctx, a) })
			ended := p.endAsked(ctx, a)
			asking.Wait()
			if err != nil {
				return err
			}
			return ended
		}},
	}
}

// endAsked has a command ended once it has left its first mark. One that has
// ended by then is not there any more.
func (p *Play) endAsked(ctx context.Context, a rig.Asked) error {
	for {
		log, err := p.Events(ctx)
		if err != nil {
			return err
		}
		begun, err := p.marked()
		if err != nil {
			return err
		}
		id, answered := asked(log, a)
		if id != "" && (begun || answered) {
			err := p.Repeat(ctx, http.MethodDelete, p.Path("/execs/"+string(id)), nil, nil)
			if rig.Missing(err) {
				return nil
			}
			return err
		}
		if err := sleep.For(ctx, 5e6); err != nil {
			return err
		}
	}
}

// asked finds a command in the log, and whether it was answered.
func asked(log []dormouse.Event, a rig.Asked) (id dormouse.EventID, answered bool) {
	for _, e := range log {
		switch e.Type { //nolint:exhaustive // the others are not about commands
		case dormouse.ExecAsked:
			if rig.Decode[dormouse.ExecAsk](e).Command == a.Command {
				id = e.ID
			}
		case dormouse.ExecAnswered, dormouse.ExecRefused:
			answered = answered || rig.Decode[dormouse.ExecAnswer](e).Exec == id
		}
	}
	return id, answered
}
