package law

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/dormouse-run/dormouse"
)

// Rule is a verb's row in the table: all that is particular about it.
type Rule struct {
	// Name is what the verb is called on the wire between servers.
	Name string
	// AfterEnd says that the verb is allowed in a terminated session.
	AfterEnd bool
	// Repeat says what a second attempt of the verb does.
	Repeat Repeat
	// Wire says that one server may forward the verb to another.
	Wire bool
	// Agent says that an agent may ask for the verb in its own session, with a tool call.
	Agent bool
	// Hidden says that the verb is refused, as if the session were not there, once it was
	// deleted.
	Hidden bool
	// FreesDisk says that the verb takes something away from the disk, so that it has to
	// work while the disk is full.
	FreesDisk bool
	// Damaged says that the verb is allowed in a session whose log cannot be read.
	Damaged bool
	// Lookup is what must be read before the verb can be decided.
	Lookup Lookup

	kind   reflect.Type
	decide func(d *draft, v Verb) error
}

// Repeat says what a second attempt of a verb does.
type Repeat int

const (
	// NotIdempotent verbs may do their work twice, or refuse the second attempt.
	NotIdempotent Repeat = iota
	// IdempotentByID verbs carry an id of the client: the second attempt with it changes
	// nothing, and another request under it is refused. See ClientIDs.
	IdempotentByID
	// Idempotent verbs set something to what it is already the second time.
	Idempotent
)

// Lookup is a set of things that the law cannot read itself.
type Lookup int

const (
	// LookupOpenCalls is the text and the usage of model calls that the verb may close:
	// Command.Seen and Command.Counted.
	LookupOpenCalls Lookup = 1 << iota
	// LookupRights is the agent's configuration, which a child's must not exceed:
	// Spawn.Rights.
	LookupRights
)

// Verbs is the table of all verbs: first what people and programs ask for, then what the
// actor records.
var Verbs = []Rule{
	rule(Rule{Name: "create", Repeat: IdempotentByID}, (*draft).create),
	rule(Rule{Name: "send", Repeat: IdempotentByID, Wire: true}, (*draft).send),
	rule(Rule{Name: "prompt", Repeat: IdempotentByID, Wire: true}, (*draft).prompt),
	rule(Rule{Name: "cancel", Wire: true}, (*draft).cancel),
	rule(Rule{Name: "interrupt", Wire: true, Lookup: LookupOpenCalls}, (*draft).interrupt),
	rule(Rule{Name: "answer", Repeat: IdempotentByID, Wire: true}, (*draft).answer),
	rule(Rule{Name: "open_thread", Repeat: Idempotent, Wire: true}, (*draft).openThread),
	rule(Rule{Name: "archive_thread", Repeat: Idempotent, Wire: true, Lookup: LookupOpenCalls}, (*draft).archiveThread),
	rule(Rule{Name: "schedule", Repeat: IdempotentByID, Wire: true, Agent: true}, (*draft).schedule),
	rule(Rule{Name: "unschedule", Wire: true, Agent: true}, (*draft).unschedule),
	rule(Rule{Name: "spawn", Repeat: IdempotentByID, Wire: true, Agent: true, Lookup: LookupRights}, (*draft).spawn),
	rule(Rule{Name: "end_child", Wire: true, Agent: true}, (*draft).endChild),
	rule(Rule{Name: "describe", AfterEnd: true, Wire: true, Agent: true, Hidden: true}, (*draft).describe),
	rule(Rule{Name: "archive", AfterEnd: true, Repeat: Idempotent, Wire: true, Hidden: true, FreesDisk: true, Damaged: true, Lookup: LookupOpenCalls}, bare[Archive]((*draft).archive)),
	rule(Rule{Name: "delete", AfterEnd: true, Repeat: Idempotent, Wire: true, FreesDisk: true, Damaged: true, Lookup: LookupOpenCalls}, (*draft).deleteSession),
	rule(Rule{Name: "run", Repeat: IdempotentByID, Wire: true}, (*draft).run),
	rule(Rule{Name: "end_exec", AfterEnd: true, Wire: true}, (*draft).endExec),
	rule(Rule{Name: "retry", Wire: true}, (*draft).retry),
	rule(Rule{Name: "continue", Wire: true, Lookup: LookupOpenCalls}, (*draft).continueTurn),
	rule(Rule{Name: "hibernate", Wire: true, Lookup: LookupOpenCalls}, bare[Hibernate]((*draft).hibernate)),
	rule(Rule{Name: "wake", Wire: true}, bare[Wake]((*draft).wake)),
	rule(Rule{Name: "terminate", AfterEnd: true, Repeat: Idempotent, Wire: true, Hidden: true, FreesDisk: true, Damaged: true, Lookup: LookupOpenCalls}, (*draft).terminate),
	rule(Rule{Name: "ask_snapshot", Repeat: Idempotent, Wire: true}, (*draft).askSnapshot),
	rule(Rule{Name: "import_snapshot", Repeat: Idempotent, Wire: true}, (*draft).importSnapshot),
	rule(Rule{Name: "forget_snapshots", AfterEnd: true, Repeat: Idempotent, Wire: true, Agent: true, FreesDisk: true}, (*draft).forgetSnapshots),
	rule(Rule{Name: "swap", Repeat: Idempotent, Wire: true, Agent: true}, (*draft).swap),

	rule(Rule{Name: "start_exec"}, (*draft).startExec),
	rule(Rule{Name: "take"}, (*draft).take),
	rule(Rule{Name: "recover", AfterEnd: true, Lookup: LookupOpenCalls}, bare[Recover]((*draft).recoverAttempts)),
	rule(Rule{Name: "start_attempt"}, (*draft).startAttempt),
	rule(Rule{Name: "return_attempt"}, (*draft).returnAttempt),
	rule(Rule{Name: "fail_attempt", Lookup: LookupOpenCalls}, (*draft).failAttempt),
	rule(Rule{Name: "start_op"}, (*draft).startOp),
	rule(Rule{Name: "finish_op", AfterEnd: true}, (*draft).finishOp),
	rule(Rule{Name: "apply_action"}, (*draft).applyAction),
	rule(Rule{Name: "lose_op", AfterEnd: true}, (*draft).loseOp),
	rule(Rule{Name: "block"}, (*draft).block),
	rule(Rule{Name: "end_turn"}, (*draft).endTurn),
	rule(Rule{Name: "warm"}, bare[Warm]((*draft).warm)),
	rule(Rule{Name: "sandbox_up", AfterEnd: true}, (*draft).sandboxUp),
	rule(Rule{Name: "sandbox_gone", AfterEnd: true}, (*draft).sandboxGone),
	rule(Rule{Name: "sandbox_delayed", AfterEnd: true}, (*draft).sandboxDelayed),
	rule(Rule{Name: "sandbox_relieved", AfterEnd: true}, (*draft).sandboxRelieved),
	rule(Rule{Name: "sandbox_down", AfterEnd: true}, (*draft).sandboxDown),
	rule(Rule{Name: "record_recovery", AfterEnd: true}, (*draft).recordRecovery),
	rule(Rule{Name: "take_snapshot", AfterEnd: true}, (*draft).takeSnapshot),
	rule(Rule{Name: "skip_snapshot", AfterEnd: true}, (*draft).skipSnapshot),
	rule(Rule{Name: "touch"}, (*draft).touch),
	rule(Rule{Name: "fire"}, (*draft).fire),
	rule(Rule{Name: "child_up", AfterEnd: true}, (*draft).childUp),
	rule(Rule{Name: "child_down", AfterEnd: true}, (*draft).childDown),
	rule(Rule{Name: "parent_told", AfterEnd: true}, bare[ParentTold]((*draft).parentTold)),
	rule(Rule{Name: "evict"}, bare[Evict]((*draft).evict)),
	rule(Rule{Name: "tick", AfterEnd: true}, (*draft).tick),
}

// rule completes the row of the verb that decide is for.
func rule[V Verb](r Rule, decide func(*draft, V) error) Rule {
	r.kind = reflect.TypeFor[V]()
	r.decide = func(d *draft, v Verb) error {
		verb, ok := v.(V)
		if !ok {
			return fmt.Errorf("%T is not %s: %w", v, r.Name, dormouse.ErrInvalid)
		}
		return decide(d, verb)
	}
	return r
}

// bare is for a verb without fields.
func bare[V Verb](decide func(*draft) error) func(*draft, V) error {
	return func(d *draft, _ V) error { return decide(d) }
}

// byKind finds the row of a verb.
var byKind = func() map[reflect.Type]*Rule {
	rules := make(map[reflect.Type]*Rule, len(Verbs))
	for i := range Verbs {
		rules[Verbs[i].kind] = &Verbs[i]
	}
	return rules
}()

// RuleOf returns the row of a verb. One without a row is refused everywhere.
func RuleOf(v Verb) Rule {
	if r, ok := byKind[reflect.TypeOf(v)]; ok {
		return *r
	}
	return Rule{Name: fmt.Sprintf("%T", v)}
}

// Zero is the verb of a row with empty fields.
func (r Rule) Zero() Verb {
	v, _ := reflect.TypeAssert[Verb](reflect.Zero(r.kind))
	return v
}

// Lookups returns what must be read before v can be decided.
func Lookups(v Verb) Lookup {
	switch v := v.(type) { //nolint:gochecksumtype // the others need what their row says
	case ApplyAction:
		if v.Do != nil {
			return Lookups(v.Do)
		}
	case Send:
		for _, s := range v.Steps {
			if s.Interrupt != nil {
				return LookupOpenCalls
			}
		}
	}
	return RuleOf(v).Lookup
}

// Repeatable reports whether v changes nothing when it is asked for again after it was
// carried out, so that asking again finds out how it went.
func Repeatable(v Verb) bool {
	if s, ok := v.(Send); ok && s.Request == "" { // without an id of its own it is as its steps are
		for _, step := range s.Steps {
			if step.Prompt == nil {
				return false
			}
		}
	}
	return RuleOf(v).Repeat != NotIdempotent
}

// WhenDamaged returns v as it is asked of a session whose log cannot be read, and whether it
// may be: such a session can be ended, and nothing else can be decided.
func WhenDamaged(v Verb) (Verb, bool) {
	if d, ok := v.(Delete); ok {
		d.Resting = false // nothing of it runs any more
		v = d
	}
	return v, RuleOf(v).Damaged
}

// Sender is the lease under which another session sends v, nil if none does.
func Sender(v Verb) *dormouse.Fence {
	if p, ok := v.(Prompt); ok {
		return p.Under
	}
	return nil
}

// Retried returns v as it is asked for again when it may have been carried out: its ids are
// no longer new.
func Retried(v Verb) Verb {
	switch v := v.(type) { //nolint:gochecksumtype // the others say nothing of it
	case Prompt:
		v.New = false
		return v
	case Run:
		v.New = false
		return v
	case Send:
		v.Steps = slices.Clone(v.Steps)
		for i, s := range v.Steps {
			if s.Prompt != nil {
				p := *s.Prompt
				p.New = false
				v.Steps[i].Prompt = &p
			}
		}
		return v
	}
	return v
}

// WithRights returns v with the configuration that a child's must not exceed.
func WithRights(v Verb, config dormouse.AgentConfig) Verb {
	switch v := v.(type) { //nolint:gochecksumtype // the others spawn nothing
	case Spawn:
		v.Rights = config
		return v
	case ApplyAction:
		if v.Do != nil {
			v.Do = WithRights(v.Do, config)
		}
		return v
	}
	return v
}
