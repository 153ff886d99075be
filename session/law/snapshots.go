package law

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/dormouse-run/dormouse"
)

// Workspace is what is known of the session's files.
type Workspace struct {
	// Number counts the workspaces. Base is the snapshot that this one lies over, and
	// Layers are the layers of that snapshot.
	Number uint64              `json:"number,omitempty"`
	Base   dormouse.SnapshotID `json:"base,omitempty"`
	Layers []dormouse.Layer    `json:"layers,omitempty"`
	// Sealed says that it began with exactly the files of the workspace before. Fresh says
	// that no process that ran over the files of that workspace may be restored.
	Sealed bool `json:"sealed,omitempty"`
	Fresh  bool `json:"fresh,omitempty"`
	// Newest is the newest snapshot of the chain, whether or not it can still be restored
	// to, and Chain are its layers.
	Newest dormouse.SnapshotID `json:"newest,omitempty"`
	Chain  []dormouse.Layer    `json:"line,omitempty"`
	// Policy and Seals are those of the newest sandbox.
	Policy dormouse.SnapshotPolicy `json:"policy,omitempty"`
	Seals  bool                    `json:"seals,omitempty"`
	// Used says that an op has used the sandbox. Due is the seq of the end of a turn that
	// used the sandbox and has no snapshot yet.
	Used bool   `json:"used,omitempty"`
	Due  uint64 `json:"due,omitempty"`
	// Calls are the tool calls that used the sandbox and have no snapshot yet, if each is
	// to have one.
	Calls []Called `json:"calls,omitempty"`
	// Recovered is the last recovery of its files that was recorded. Uncompared is the
	// snapshot that this recovery could not read because it is lost: no later snapshot
	// builds on it.
	Recovered  string              `json:"recovered,omitempty"`
	Uncompared dormouse.SnapshotID `json:"uncompared,omitempty"`
	// Open says that a sandbox was started with it, so that it may have changed since its
	// base.
	Open bool `json:"open,omitempty"`
	// Touched is the seq of the last event that may have changed files since the newest
	// snapshot, 0 if none did. Live says that when that snapshot was taken a process ran
	// that can change files without any event.
	Touched uint64 `json:"touched,omitempty"`
	Live    bool   `json:"live,omitempty"`
	// Before is the seq of the newest prompt whose snapshot before the turn was taken, or
	// given up. It counts until that turn has begun. Behind is how many were taken for it
	// during which people may have changed files again.
	Before uint64 `json:"before,omitempty"`
	Behind int    `json:"behind,omitempty"`
}

// Called is the seq at which a tool call of a turn ended.
type Called struct {
	Seq  uint64          `json:"seq"`
	Turn dormouse.TurnID `json:"turn"`
}

// Snapshot is a snapshot that can be restored. All of it is in the log, at Seq.
type Snapshot struct {
	ID    dormouse.SnapshotID `json:"id"`
	Seq   uint64              `json:"seq"`
	At    uint64              `json:"at"`
	Taken time.Time           `json:"taken"`
	// Midway says that a turn was active then, Aside that it is not part of the
	// chain.
	Midway bool `json:"midway,omitempty"`
	Aside  bool `json:"aside,omitempty"`
}

// Truncation is a part of the log that is no part of the conversation any more: what comes
// after From, up to and with Upto.
type Truncation struct {
	From uint64 `json:"from"`
	Upto uint64 `json:"upto"`
}

// WantedSnapshot is a snapshot that should be taken.
type WantedSnapshot struct {
	ID     dormouse.SnapshotID
	Label  string
	Reason string
}

// WantSnapshot says which snapshot should be taken of a workspace now, if one should.
func WantSnapshot(s State) *WantedSnapshot {
	still := s.Sandbox.Phase == SandboxActive || s.Sandbox.Phase == SandboxCold
	switch {
	case s.Terminated != nil || !still || s.Workspace.Policy == "":
		return nil
	case len(s.Workspace.Calls) > 0 && s.Workspace.Policy == dormouse.SnapshotsByCall:
		return &WantedSnapshot{ID: DeriveSnapshotID(s.Session, dormouse.SnapshotOfCall, s.Workspace.Calls[0].Seq), Reason: dormouse.SnapshotOfCall}
	case len(s.Asked) > 0:
		return &WantedSnapshot{ID: s.Asked[0].ID, Label: s.Asked[0].Label, Reason: dormouse.SnapshotAsked}
	case s.Workspace.Due > 0 && !s.Works():
		return &WantedSnapshot{ID: DeriveSnapshotID(s.Session, dormouse.SnapshotOfTurn, s.Workspace.Due), Reason: dormouse.SnapshotOfTurn}
	case s.Sandbox.Phase == SandboxCold && s.Workspace.Seals && s.Workspace.Open:
		return &WantedSnapshot{ID: DeriveSnapshotID(s.Session, dormouse.SnapshotSealing, s.Sandbox.Generation), Reason: dormouse.SnapshotSealing}
	}
	if prompt := beforeTurn(s); prompt > 0 {
		name := dormouse.SnapshotBefore
		if n := s.Workspace.Behind; n > 0 {
			name += strconv.Itoa(n)
		}
		return &WantedSnapshot{ID: DeriveSnapshotID(s.Session, name, prompt), Reason: dormouse.SnapshotBefore}
	}
	return nil
}

// beforeTurn is the seq of the newest prompt whose turn could begin now, if a snapshot must
// be taken before it: because people have changed files, or because the newest snapshot was
// deleted. It is 0 if no snapshot must be taken.
func beforeTurn(s State) uint64 {
	if p := s.Workspace.Policy; p != dormouse.SnapshotsByTurn && p != dormouse.SnapshotsByCall || s.Terminated != nil || s.Works() || !s.changed() && !s.newestDeleted() {
		return 0
	}
	if next := s.nextPrompt(); next > s.Workspace.Before {
		return next
	}
	return 0
}

// TurnNeedsSnapshot reports whether a turn that ends now leaves files that a snapshot is to
// be taken of.
func (s State) TurnNeedsSnapshot() bool {
	p := s.Workspace.Policy
	return s.Workspace.Used && (p == dormouse.SnapshotsByTurn || p == dormouse.SnapshotsByCall)
}

// nextPrompt is the seq of the newest prompt that waits for nothing but its turn.
func (s State) nextPrompt() (seq uint64) {
	for _, t := range s.Threads {
		if t.Turn == nil && len(t.Queue) > 0 {
			seq = max(seq, t.Queue[0].Seq)
		}
	}
	return seq
}

// changed reports whether files may differ from those of the newest snapshot. If it says
// no, nothing can have changed them and no snapshot is needed.
func (s State) changed() bool {
	return s.Workspace.Touched > 0 || s.Workspace.Live || slices.ContainsFunc(s.Ops, func(o OpenOp) bool { return ChangesFiles(o.Kind) })
}

// newestDeleted reports whether the newest snapshot was deleted, so that the present files
// cannot be restored from it.
func (s State) newestDeleted() bool {
	_, there := s.Snapshot(s.Workspace.Newest)
	return s.Workspace.Newest != "" && !there
}

// PresentSnapshot returns the snapshot that holds the present files. It returns true
// without an ID if there are no files to hold.
func (s State) PresentSnapshot() (dormouse.SnapshotID, bool) {
	_, there := s.Snapshot(s.Workspace.Newest)
	switch {
	case s.Workspace.Policy == "" || s.Workspace.Newest == "" && !s.changed():
		return "", true
	case there && !s.changed():
		return s.Workspace.Newest, true
	}
	return "", false
}

// ChangesFiles reports whether an op of this kind may change the files of a workspace.
func ChangesFiles(k dormouse.OpKind) bool { return k.InSandbox() && k != dormouse.OpRead }

// touch records that a visitor enters the sandbox who may change files.
func (d *draft) touch(v Touch) error {
	if d.Sandbox.Phase != SandboxActive || d.Sandbox.Generation != v.Generation {
		return fmt.Errorf("sandbox %d is not active: %w", v.Generation, dormouse.ErrConflict)
	}
	d.add(dormouse.WorkspaceTouched, "", v.WorkspaceTouch)
	return nil
}

// ErrSnapshotDue refuses what could change files before the snapshot of a tool call is taken.
var ErrSnapshotDue = fmt.Errorf("the snapshot of the tool call before is being taken: %w", dormouse.ErrConflict)

// CallSnapshotDue reports whether the snapshot of a tool call is to be taken first.
func CallSnapshotDue(s State) bool {
	w := WantSnapshot(s)
	return w != nil && w.Reason == dormouse.SnapshotOfCall
}

// DeriveSnapshotID names a snapshot by what it is made for, so that it is the same however often
// that is tried.
func DeriveSnapshotID(id dormouse.SessionID, reason string, n uint64) dormouse.SnapshotID {
	return dormouse.SnapshotID(dormouse.DeriveID(dormouse.SnapshotPrefix, string(id), reason, strconv.FormatUint(n, 10)))
}

// Snapshot returns a snapshot that can be restored.
func (s State) Snapshot(id dormouse.SnapshotID) (Snapshot, bool) {
	i := slices.IndexFunc(s.Snapshots, func(p Snapshot) bool { return p.ID == id })
	if i < 0 {
		return Snapshot{}, false
	}
	return s.Snapshots[i], true
}

// Truncated reports whether what has a seq is no part of the conversation any more.
func (s State) Truncated(seq uint64) bool {
	return slices.ContainsFunc(s.Truncations, func(v Truncation) bool { return v.From < seq && seq <= v.Upto })
}

func (d *draft) askSnapshot(v AskSnapshot) error {
	if err := v.Validate(); err != nil {
		return err
	}
	asked := slices.ContainsFunc(d.Asked, func(a dormouse.SnapshotAsk) bool { return a.ID == v.ID })
	if _, taken := d.Snapshot(v.ID); taken || asked {
		return nil
	}
	switch {
	case d.Workspace.Policy == "" && d.Sandbox.Generation == 0:
		return fmt.Errorf("the session has had no sandbox yet, so that there is nothing to take a snapshot of: %w", dormouse.ErrConflict)
	case d.Workspace.Policy == "":
		return fmt.Errorf("no snapshots are taken of the sandboxes of this server: %w", dormouse.ErrConflict)
	case len(d.Asked) >= dormouse.MaxSnapshotsAsked:
		return fmt.Errorf("%d snapshots are being waited for: %w", len(d.Asked), dormouse.ErrConflict)
	}
	d.add(dormouse.SnapshotAskedFor, "", v.SnapshotAsk)
	return nil
}

// takeSnapshot records a snapshot, and what it makes superfluous.
func (d *draft) takeSnapshot(v TakeSnapshot) error {
	w := WantSnapshot(d.State)
	if w == nil || w.ID != v.ID {
		return fmt.Errorf("snapshot %s is not wanted: %w", v.ID, dormouse.ErrConflict)
	}
	if v.Workspace != d.Workspace.Number || len(v.Layers) == 0 {
		return fmt.Errorf("snapshot %s of workspace %d: %w", v.ID, v.Workspace, dormouse.ErrConflict)
	}
	d.record(dormouse.SnapshotTaken, "", v.Snapshot)
	// What no layer carries exists only in the volume: the workspace stays as it is.
	if v.Reason == dormouse.SnapshotSealing && v.LeftOut == 0 {
		d.record(dormouse.WorkspaceSwapped, "", dormouse.WorkspaceSwap{
			Number: d.Workspace.Number + 1, Snapshot: v.ID, Layers: v.Layers, Reason: dormouse.SwapSealed,
		})
	}
	d.retain(v.Keep)
	return nil
}

// recordRecovery records that files were lost and put back, once.
func (d *draft) recordRecovery(v RecordRecovery) error {
	if v.ID == "" || v.ID == d.Workspace.Recovered {
		return nil
	}
	d.record(dormouse.WorkspaceRecovered, "", v.WorkspaceRecovery)
	return nil
}

// retain removes the snapshots whose retention is over.
func (d *draft) retain(keep dormouse.Retention) {
	if keep.MaxCount == 0 {
		keep.MaxCount = dormouse.MaxSnapshots
	}
	keep.MaxCount = min(keep.MaxCount, dormouse.MaxSnapshots)
	if gone := d.Expired(keep, d.c.Now); len(gone) > 0 {
		d.record(dormouse.SnapshotDeleted, "", dormouse.SnapshotsGone{IDs: gone, Reason: "retention"})
	}
}

func (d *draft) skipSnapshot(v SkipSnapshot) error {
	if w := WantSnapshot(d.State); w == nil || w.ID != v.ID {
		return nil
	}
	d.record(dormouse.SnapshotSkipped, "", v.SnapshotSkip)
	return nil
}

func (d *draft) forgetSnapshots(v ForgetSnapshots) error {
	var gone []dormouse.SnapshotID
	for _, id := range v.IDs {
		if _, ok := d.Snapshot(id); ok && !slices.Contains(gone, id) {
			gone = append(gone, id)
		}
	}
	if len(gone) > 0 {
		d.add(dormouse.SnapshotDeleted, "", dormouse.SnapshotsGone{IDs: gone})
	}
	return nil
}

// swap replaces the files of the session. The sandbox that uses the present files is
// stopped, and its processes end.
func (d *draft) swap(v Swap) error {
	if v.Number != d.Workspace.Number+1 {
		return fmt.Errorf("workspace %d comes after %d: %w", v.Number, d.Workspace.Number, dormouse.ErrConflict)
	}
	if err := d.RefusesSwap(v); err != nil {
		return err
	}
	if !v.Discard {
		if err := d.replaces(v.Replaced); err != nil {
			return err
		}
	}
	d.add(dormouse.WorkspaceSwapped, "", v.WorkspaceSwap)
	if v.To > 0 {
		d.truncate(v.To, v.Replaced)
	}
	if d.Sandbox.Phase == SandboxActive {
		d.stopSandbox(v.Reason)
	}
	return nil
}

// RefusesSwap says why the files of a session cannot be replaced now.
func (s State) RefusesSwap(v Swap) error {
	for _, t := range s.Threads {
		if t.Turn != nil && t.Turn.ID != v.Within && (t.Turn.Blocked == "" || v.To > 0) {
			return fmt.Errorf("the session is at work; interrupt it first: %w", dormouse.ErrConflict)
		}
	}
	for _, o := range s.Ops {
		if o.Kind.InSandbox() {
			return fmt.Errorf("something runs in the sandbox: %w", dormouse.ErrConflict)
		}
	}
	if len(s.Execs) > 0 {
		return fmt.Errorf("a command runs in the sandbox: %w", dormouse.ErrConflict)
	}
	if s.Sandbox.Phase == SandboxWarming {
		return fmt.Errorf("the sandbox is being started: %w", dormouse.ErrConflict)
	}
	return nil
}

// replaces refuses to drop files that no snapshot holds. What a running process writes
// after that snapshot is lost with the process.
func (s State) replaces(by dormouse.SnapshotID) error {
	if s.Workspace.Policy == "" {
		return nil // none can be made
	}
	if s.Workspace.Touched > 0 {
		return fmt.Errorf("files may have changed since the last snapshot, and would be lost: %w", dormouse.ErrConflict)
	}
	if _, kept := s.Snapshot(by); by != "" && !kept {
		return fmt.Errorf("snapshot %s, which is to hold what is replaced, is not there: %w", by, dormouse.ErrConflict)
	}
	return nil
}

// truncate goes back in the conversation. It deletes newer snapshots, except the one of
// the files that are replaced.
func (d *draft) truncate(to uint64, replaced dormouse.SnapshotID) {
	for _, t := range d.Threads {
		d.clearAttention(t.ID)
	}
	var gone []dormouse.SnapshotID
	cut := dormouse.Truncation{To: to}
	for _, p := range d.Snapshots {
		switch {
		case p.At <= to || p.Aside:
		case p.ID == replaced:
			cut.Replaced = replaced
		default:
			gone = append(gone, p.ID)
		}
	}
	if len(gone) > 0 {
		d.add(dormouse.SnapshotDeleted, "", dormouse.SnapshotsGone{IDs: gone, Reason: "history was truncated"})
	}
	d.add(dormouse.HistoryTruncated, "", cut)
}

func applySnapshot(s *State, e dormouse.Event) {
	switch e.Type { //nolint:exhaustive // those of snapshots
	case dormouse.SnapshotAskedFor:
		s.Asked = append(s.Asked, Payload[dormouse.SnapshotAsk](e))
	case dormouse.SnapshotTaken:
		p := Payload[dormouse.Snapshot](e)
		s.Snapshots = append(s.Snapshots, Snapshot{ID: p.ID, Seq: e.Seq, At: p.At, Taken: e.Time, Midway: p.Midway, Aside: p.Aside})
		if p.Aside {
			return
		}
		s.Workspace.Newest, s.Workspace.Chain = p.ID, p.Layers
		markClean(s, p.At, p.Live)
		closeSnapshot(s, p.ID, p.Reason)
	case dormouse.SnapshotSkipped:
		p := Payload[dormouse.SnapshotSkip](e)
		if p.At > 0 {
			markClean(s, p.At, p.Live)
		} else {
			s.Workspace.Before = s.nextPrompt() // a retry for the same prompt would fail in the same way
		}
		closeSnapshot(s, p.ID, p.Reason)
	case dormouse.SnapshotDeleted:
		gone := Payload[dormouse.SnapshotsGone](e).IDs
		s.Snapshots = slices.DeleteFunc(s.Snapshots, func(p Snapshot) bool { return slices.Contains(gone, p.ID) })
	case dormouse.WorkspaceSwapped:
		p := Payload[dormouse.WorkspaceSwap](e)
		sealed := p.Reason == dormouse.SwapSealed || p.Processes
		s.Workspace = Workspace{
			Number: p.Number, Base: p.Snapshot, Layers: p.Layers, Newest: p.Snapshot, Chain: p.Layers,
			Sealed: sealed, Fresh: !sealed, Policy: s.Workspace.Policy, Seals: s.Workspace.Seals, Recovered: s.Workspace.Recovered,
		}
	case dormouse.WorkspaceTouched:
		s.Workspace.Touched = e.Seq
	case dormouse.WorkspaceRecovered:
		p := Payload[dormouse.WorkspaceRecovery](e)
		s.Workspace.Recovered = p.ID
		if p.Uncompared != "" {
			s.Workspace.Uncompared = s.Workspace.Newest
		}
		s.Workspace.Touched = e.Seq // the files that were found instead are saved beside the restored ones
	case dormouse.HistoryTruncated:
		p := Payload[dormouse.Truncation](e)
		s.Truncations = append(s.Truncations, Truncation{From: p.To, Upto: e.Seq})
		for i := range s.Snapshots { // the conversation that it belongs to was truncated
			s.Snapshots[i].Aside = s.Snapshots[i].Aside || p.Replaced != "" && s.Snapshots[i].ID == p.Replaced
		}
	}
}

// markClean notes that the files are those of the newest snapshot, except for changes that
// were recorded after a seq.
func markClean(s *State, seq uint64, live bool) {
	if s.Workspace.Touched <= seq {
		s.Workspace.Touched = 0
	}
	s.Workspace.Live = live
}

// maxBehind is how many more snapshots a turn waits for while people go on changing files.
// Each holds only what changed since the one before, and so takes only as long.
const maxBehind = 5

// closeSnapshot notes that a snapshot was taken, or will not be.
func closeSnapshot(s *State, id dormouse.SnapshotID, reason string) {
	s.Asked = slices.DeleteFunc(s.Asked, func(a dormouse.SnapshotAsk) bool { return a.ID == id })
	switch reason {
	case dormouse.SnapshotOfTurn:
		s.Workspace.Due = 0
	case dormouse.SnapshotOfCall:
		if calls := s.Workspace.Calls; len(calls) > 0 && DeriveSnapshotID(s.Session, reason, calls[0].Seq) == id {
			s.Workspace.Calls = calls[1:]
		}
	case dormouse.SnapshotSealing:
		s.Workspace.Open, s.Workspace.Due, s.Workspace.Calls = false, 0, nil
	case dormouse.SnapshotBefore:
		if s.Workspace.Touched > 0 && s.Workspace.Behind < maxBehind {
			s.Workspace.Behind++
		} else {
			s.Workspace.Before = s.nextPrompt()
		}
	}
	begun := slices.ContainsFunc(s.Threads, func(t Thread) bool { return t.Turn != nil })
	if !begun && !s.changed() { // earlier changes are in this snapshot, and the next turn needs no other for them
		s.Workspace.Used = false
	}
}

// Layers are named not only by snapshots, but also by the present files of the session and
// by its newest snapshot, which the next one is compared with. Rows of the stores have
// these names.
const (
	baseName  dormouse.SnapshotID = "base"
	chainName dormouse.SnapshotID = "line"
)

// nameBlobs lays out which blobs the snapshots name.
func nameBlobs(rows *dormouse.Rows, e dormouse.Event) {
	names := func(snap dormouse.SnapshotID, layers []dormouse.Layer) {
		digests := make([]dormouse.Digest, len(layers))
		for i, l := range layers {
			digests[i] = l.Digest
		}
		rows.SnapshotBlobs = append(rows.SnapshotBlobs, dormouse.SnapshotBlobs{Snapshot: snap, Digests: digests})
	}
	switch e.Type { //nolint:exhaustive // those that name
	case dormouse.SnapshotTaken:
		p := Payload[dormouse.Snapshot](e)
		names(p.ID, p.Layers)
		if !p.Aside {
			names(chainName, p.Layers)
		}
	case dormouse.SnapshotDeleted:
		rows.Released = append(rows.Released, Payload[dormouse.SnapshotsGone](e).IDs...)
	case dormouse.WorkspaceSwapped:
		p := Payload[dormouse.WorkspaceSwap](e)
		names(baseName, p.Layers)
		names(chainName, p.Layers)
	}
}
