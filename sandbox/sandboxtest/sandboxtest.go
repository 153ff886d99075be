// Package sandboxtest is the promises of package sandbox, executable. A driver
// that passes Run may stand behind sessions.
package sandboxtest

import (
	"crypto/rand"
	"testing"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/sandbox"
)

// Harness is a driver under test, and what only its package can do to it.
type Harness struct {
	Driver sandbox.Driver
	// Restart returns the driver that the next server would make of the same
	// state. The one before it is not closed: its server was killed.
	Restart func(t *testing.T) sandbox.Driver
	// Kill ends the sandbox from outside, as a fault would.
	Kill func(t *testing.T, h sandbox.Handle)
	// Freeze holds the whole runner still until thaw is called. Halt does that to a
	// process.
	Freeze func(t *testing.T, h sandbox.Handle) (thaw func())
	// Pauses says that what runs holds still while it is captured.
	Pauses bool
}

// Run holds a driver to its promises. It calls open for every subtest. Commands
// are given to a POSIX shell.
func Run(t *testing.T, open func(t *testing.T) Harness) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, *world)
	}{
		// Driver.
		{"create must end whatever an earlier one left, or take it over", createClearsLeftovers},
		{"a new generation must find the files its predecessor left", generationFindsFiles},
		{"attach must return ErrGone only when the sandbox is dead for certain", attachIsCertain},
		{"attach reaches a sandbox that a server before us started", attachReaches},
		{"stop must end everything and keep the files", stopKeepsFiles},
		{"stopping what is gone must succeed", stopGone},
		{"who comes late must neither stop, freeze, capture nor remove", lateIsRefused},
		{"furnish must complete what an environment leaves open", furnishCompletes},
		{"furnish must refuse what sessions may not have", furnishRefuses},
		{"a sandbox must say its image, and a later one is of the same", imageStays},
		// Sandbox.
		{"calls must wait out a short loss of the runner", outlastsLoss},
		{"start must return nil only once the runner has it", startIsKnown},
		{"starting the same op twice must act once", startActsOnce},
		{"start under an older epoch is refused and has no late effect", startIsFenced},
		{"wait must return the result of a started op", waitReturnsResult},
		{"wait must return the result of an op started by a server before us", waitAfterRestart},
		{"wait shows output seen from now on", waitShowsOutput},
		{"ask must say what the runner knows of an op", askKnows},
		{"kill must end a running op and everything it started", killEndsAll},
		{"kill leaves alone what is over or was never seen", killLeavesAlone},
		{"a forgotten op was never seen", forgotten},
		{"gone must be closed once the sandbox is dead for certain", goneIsCertain},
		{"close lets go of the sandbox, which must live on", closeLetsGo},
		{"methods may be used by several goroutines at once", manyAtOnce},
		{"every method respects its context", respectsContext},
		// Calls.
		{"a command is told nothing of the server", noEnvironment},
		{"a command over its time is ended with everything it started", timeoutEndsAll},
		{"a task lives on, its result says where, and kill must end it", taskLivesOn},
		{"a file is written whole and read back", filesReadBack},
		{"an edit acts once, keeps the mode, and changes nothing if it does not fit", editActsOnce},
		{"files are found by their names and lines by what they say", searches},
		{"a long output is kept in a file inside", longOutputIsKept},
		{"a shell is restarted on request", shellRestarts},
		// Machine, where the sandbox is one.
		{"a stream must end when a newer epoch has spoken", streamsAreFenced},
		{"close must end the streams", closeEndsStreams},
		{"terminals must outlive their streams, and say how they ended", terminalOutlives},
		{"resize must change the size of a living terminal", terminalResizes},
		{"end terminal must end it and everything started on it", terminalEnds},
		{"ports must say what listens inside, and a stream reaches it", portsAreReached},
		{"trees travel whole or not at all", treesTravel},
		{"a watch sees what changes", watchesSee},
		{"usage must say what runs, and since when nothing does", usageKnows},
		// Snapshotter, where the driver is one.
		{"capture must write what changed in a workspace since a point", captureWritesChanges},
		{"capture must know the last two points, and write all without a note", captureKnowsTheLastTwo},
		{"create must give the files of the layers and what was written over them", workspaceOverLayers},
		{"a workspace must stay until the next has started, and an older one is refused", workspaceStaysUntilStarted},
		{"whatever runs must run on when it is captured", captureRunsOn},
		{"capture under an older epoch is refused", captureIsFenced},
		{"a workspace that no sandbox had is captured", captureOfNothing},
		{"a capture that is too large is refused", captureHasLimits},
		{"names of one file are files of their own over a base", linksOverABase},
		{"what ran over a workspace may run on over it sealed, and not if it must not", sealKeepsProcesses},
		{"a branch must carry on with what runs in its origin, and go its own way", branches},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := open(t)
			test.run(t, &world{Harness: h, session: dormouse.SessionID("sesn_" + rand.Text())})
		})
	}
}
