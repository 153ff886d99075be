// Package sandboxtest tests the promises of package sandbox. A driver that passes Run may be
// used for sessions.
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
	// Restart returns the driver that the next server would open with the same
	// state. The one before it is not closed: its server was killed.
	Restart func(t *testing.T) sandbox.Driver
	// Kill ends the sandbox from outside, as a fault would.
	Kill func(t *testing.T, h sandbox.Handle)
	// Freeze stops the whole runner until thaw is called. Halt does that to a process.
	Freeze func(t *testing.T, h sandbox.Handle) (thaw func())
	// Pauses says that the sandbox is paused while a snapshot is taken.
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
		{"create must end whatever an earlier one left, or take it over", createEndsStale},
		{"a new generation must find the files its predecessor left", generationFindsFiles},
		{"attach must return ErrGone only when the sandbox is dead for certain", attachIsCertain},
		{"attach reaches a sandbox that a server before us started", attachReaches},
		{"stop must end everything and keep the files", stopKeepsFiles},
		{"stopping what is gone must succeed", stopGone},
		{"a stale fence must neither stop, freeze, snapshot nor remove", staleIsRefused},
		{"resolving must complete what an environment leaves open", resolvingCompletes},
		{"resolving must refuse what sessions may not have", resolvingRefuses},
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
		{"close detaches from the sandbox, which must live on", closeDetaches},
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
		{"snapshot must write what changed in a workspace since another", snapshotWritesChanges},
		{"snapshot must have marks of the last two, and write all without one", snapshotKnowsTheLastTwo},
		{"create must give the files of the layers and what was written over them", workspaceOverLayers},
		{"a workspace must stay until the next has started, and an older one is refused", workspaceStaysUntilStarted},
		{"whatever runs must run on when a snapshot is taken", snapshotRunsOn},
		{"a snapshot under an older epoch is refused", snapshotIsFenced},
		{"a snapshot is taken of a workspace that no sandbox had", snapshotOfNothing},
		{"a snapshot that is too large is refused", snapshotHasLimits},
		{"names of one file are files of their own over a base", linksOverABase},
		{"processes may be restored over a sealed workspace, and not if they must not", sealKeepsProcesses},
		{"a branch must be restored with the processes of its origin, and go its own way", branches},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := open(t)
			test.run(t, &world{Harness: h, session: dormouse.SessionID("sesn_" + rand.Text())})
		})
	}
}
