package dormouse

import "time"

// MaxWakeups bounds the wake-ups a session has scheduled at once.
const MaxWakeups = 20

// WakeupPrefix begins the id of a wake-up.
const WakeupPrefix = "wake_"

// WakeupID names one scheduled wake-up of a session.
type WakeupID string

// Validate refuses what cannot be a wake-up's name.
func (id WakeupID) Validate() error { return validateID(string(id), WakeupPrefix) }

// Wakeup is the payload of wakeup.scheduled: a prompt that the session gives
// itself later, once or again and again.
type Wakeup struct {
	ID WakeupID `json:"id"`
	// Cron is a schedule of five fields, in UTC; empty if it fires once.
	Cron string `json:"cron,omitempty"`
	// At is when it fires first.
	At time.Time `json:"at"`
	// In is the delay that was asked for, if the wake-up was asked for with one.
	In      time.Duration `json:"in,omitempty"`
	Content []Block       `json:"content"`
}

// WakeupFact is the payload of wakeup.fired and wakeup.cancelled.
type WakeupFact struct {
	ID WakeupID `json:"id"`
	// Prompt is what the firing queued.
	Prompt EventID `json:"prompt,omitempty"`
	// Due is when it should have fired: a wake-up that was missed, however often,
	// fires once.
	Due time.Time `json:"due,omitzero"`
	// Next is when it fires again; zero if it does not.
	Next   time.Time `json:"next,omitzero"`
	Reason string    `json:"reason,omitempty"`
}
