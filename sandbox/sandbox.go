// Package sandbox is the port of an isolated machine that a workspace is mounted in. A
// sandbox is disposable; the workspace outlives it.
package sandbox

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/runner"
)

// ErrGone means that a sandbox no longer lives, for certain: nothing that was
// started in it can still act.
var ErrGone = errors.New("sandbox is gone")

// Handle is what a driver needs to find a sandbox again. It is opaque to
// everyone else and small enough for a row.
type Handle = json.RawMessage

// Spec says which sandbox to create.
type Spec struct {
	Fence runner.Fence
	// Workspace is which files it has. Drivers that are no Snapshotter have only the
	// first.
	Workspace Workspace
	// Fresh says that no memory image may be restored.
	Fresh bool
	// Environment is what it is created from; the driver has defaults for what that
	// leaves open.
	Environment dormouse.Environment
	// Image is the digest that the environment's image had when the session's first
	// sandbox was created; empty for that one.
	Image string
}

// Driver makes one kind of sandbox.
type Driver interface {
	// Create starts the sandbox of spec.Fence's session and generation and returns
	// once its runner answers. A second Create of the same pair must end whatever
	// an earlier one left, or take it over, so that at most one sandbox of a pair
	// lives.
	// A new generation must find the files its predecessor left.
	Create(ctx context.Context, spec Spec) (Sandbox, error)

	// Attach reaches a sandbox that a server before us started. It must return
	// ErrGone only when the sandbox is dead for certain.
	Attach(ctx context.Context, h Handle, f runner.Fence) (Sandbox, error)

	// Stop ends a sandbox and everything running in it and must keep its files.
	// Stopping what is gone must succeed. It returns runner.ErrStale, and must leave
	// the sandbox alone, when it was reached under a newer epoch.
	Stop(ctx context.Context, h Handle, f runner.Fence) error

	// Remove must take away everything there is of the fence's session, its files
	// included, after ending what still runs. Removing what is gone must succeed. It
	// returns runner.ErrStale, and must leave all as it is, when the session has a
	// sandbox of a newer generation or one that was reached under a newer epoch.
	Remove(ctx context.Context, f runner.Fence) error
}

// Sandbox is a living sandbox as one server reaches it. Its methods may be used
// by several goroutines at once and must wait out a short loss of the runner.
type Sandbox interface {
	Handle() Handle

	// Start asks the runner for a call and must return nil only once the runner
	// has it. Starting the same op twice must act once. It returns
	// runner.ErrStale when a newer epoch has spoken.
	Start(ctx context.Context, c runner.Call) error

	// Wait must return the result of a started op, also when the op was started
	// by a server before us, and runner.ErrNeverSeen if it never was. Output seen
	// from now on goes to out, which may be nil.
	Wait(ctx context.Context, op dormouse.OpID, out func([]byte)) (runner.Result, error)

	// Run must do what Start and then Wait do, and call started in between.
	Run(ctx context.Context, c runner.Call, started func(), out func([]byte)) (runner.Result, error)

	// Ask must say what the runner knows of an op.
	Ask(ctx context.Context, op dormouse.OpID) (runner.Report, error)

	// Kill must end a running op and everything it started, and must end a task
	// although its result came at once. Any other op that is over, or was never
	// seen, is left alone.
	Kill(ctx context.Context, op dormouse.OpID) error

	// Forget tells the runner that an op's result is durable elsewhere, and does
	// not wait until the runner knows.
	Forget(op dormouse.OpID)

	// Gone must be closed once the sandbox is dead for certain.
	Gone() <-chan struct{}

	// Close detaches from the sandbox, which must live on.
	Close() error
}

// Ownership is what the registry of sessions knows about a session.
type Ownership struct {
	// Unsure says that it cannot be determined right now; then nothing is removed.
	Unsure bool
	// Known says that the session exists.
	Known bool
	// Generation is that of the sandbox it has, 0 if it has none.
	Generation uint64
}

// Persistent is implemented by drivers whose workspaces outlive every sandbox, so that
// stopping one loses no file and needs no snapshot.
type Persistent interface {
	KeepsWorkspace() bool
}

// EnvironmentResolver is implemented by drivers whose sandboxes can differ. With any other
// driver an environment has no effect.
type EnvironmentResolver interface {
	// ResolveEnvironment must complete what an environment leaves open, and must refuse one
	// that sessions may not have here, naming the field and what it may be. It does
	// not fetch anything: what turns out to be impossible later fails the Create.
	ResolveEnvironment(e dormouse.Environment) (dormouse.Environment, error)
}

// FromImage is implemented by sandboxes that are created from an image.
type FromImage interface {
	// ImageDigest must return the digest of the image, empty if it has none. A later Create
	// that is given it must create a sandbox from the same, or fail.
	ImageDigest() string
}

// PackageReporter is implemented by sandboxes that may have packages.
type PackageReporter interface {
	// MissingPackages must say which packages of its environment are not installed, and
	// why; it is empty if all are.
	MissingPackages() string
}

// Freezer is implemented by drivers that can hibernate a sandbox with its processes.
type Freezer interface {
	// Freeze stops a sandbox as Stop does and must keep its processes, so that they run on
	// in the next generation; but an op must be ended. It must end nothing before the
	// memory image is verified and durable; if it fails, the sandbox must run on. Freezing
	// what is frozen must succeed. It returns ErrGone if the sandbox is gone already, and
	// runner.ErrStale as Stop does.
	Freeze(ctx context.Context, h Handle, f runner.Fence) error
}

// Restored is implemented by sandboxes that may be restored from the memory image of the
// generation before.
type Restored interface {
	// Processes must say what became of the processes of a frozen generation.
	Processes() Processes
}

// ExitReporter is implemented by sandboxes that may know why they died.
type ExitReporter interface {
	// ExitCause must say why the sandbox died once it is gone, and nil if that is not
	// known.
	ExitCause() error
}

// OOMReporter is implemented by sandboxes in which processes are killed when the sandbox
// is above its memory limit.
type OOMReporter interface {
	// OOMKills must say in words which processes were killed, if no op reports it. A slow
	// reader may miss some.
	OOMKills() <-chan string
}

// Processes is what became of the processes of a frozen generation.
type Processes struct {
	// Kept says that they were restored.
	Kept bool
	// Lost says why they were not, if there were any.
	Lost string
}
