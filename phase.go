package dormouse

// Phase is the derived word people see. It is never stored as a fact.
type Phase string

// The phases.
const (
	PhaseCreating    Phase = "creating"
	PhaseReady       Phase = "ready"
	PhaseRunning     Phase = "running"
	PhaseWaiting     Phase = "waiting"
	PhaseInterrupted Phase = "interrupted"
	PhaseHibernating Phase = "hibernating"
	PhaseHibernated  Phase = "hibernated"
	PhaseWaking      Phase = "waking"
	PhaseError       Phase = "error"
	PhaseTerminated  Phase = "terminated"
)

// Phases lists every phase, in the order people meet them.
func Phases() []Phase {
	return []Phase{
		PhaseCreating, PhaseReady, PhaseRunning, PhaseWaiting, PhaseInterrupted,
		PhaseError, PhaseHibernating, PhaseHibernated, PhaseWaking, PhaseTerminated,
	}
}

// Status is the derived word of the Managed Agents API.
type Status string

// The statuses.
const (
	StatusIdle         Status = "idle"
	StatusRunning      Status = "running"
	StatusRescheduling Status = "rescheduling"
	StatusTerminated   Status = "terminated"
)
