package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/lograte"
)

// Defaults of both ends.
const (
	DefaultHeartbeat        = time.Second
	DefaultReconnectTimeout = 10 * time.Second

	// maxMissedHeartbeats is how many heartbeats a peer may miss before it counts as lost.
	maxMissedHeartbeats = 5
	// maxHandshakes bounds the connections that are not authenticated yet.
	maxHandshakes = 16
	// outputDepth bounds the pieces of output that one slow reader may lag behind.
	outputDepth = 64
	// maxUnreadOutput bounds the bytes of output that all slow readers together may lag behind.
	maxUnreadOutput = 8 << 20
	// closeTimeout bounds how long Close waits for the runner to disconnect.
	closeTimeout = 250 * time.Millisecond
)

// Why a link ended.
var (
	// ErrClosed means that the link was closed by its owner.
	ErrClosed = errors.New("link is closed")
	// ErrQuiesced means that the runner was told to close its connections.
	ErrQuiesced = errors.New("link was quiesced")
)

// LinkOptions says which runner a link is for.
type LinkOptions struct {
	// Path is the socket that the runner dials. A new link replaces the socket of
	// an older one.
	Path string
	// Secret is what the runner must know.
	Secret string
	// Fence is what the runner is bound to. Every request carries it.
	Fence Fence
	// Known is the file with the newest fence of the sandbox. If a runner claims to
	// know a newer epoch, the link believes it only if this file agrees. Without the
	// file the link believes every claim.
	Known  FenceFile
	Logger *slog.Logger
	// Heartbeat is the time between two heartbeats, zero for a second.
	Heartbeat time.Duration
	// ReconnectTimeout is how long a call waits for a disconnected runner before it
	// returns ErrUnreachable, zero for ten seconds.
	ReconnectTimeout time.Duration
	// Priority is told of every request before the runner is. It may be nil.
	Priority Priority
}

// Link is the server's end of the protocol. It reaches one runner across as many
// connections as it takes. It sends requests again if a connection was lost before
// they were answered; the runner executes each op once.
type Link struct {
	opts       LinkOptions
	log        *slog.Logger
	lines      *lograte.Handler // behind log: rate limits what the sandbox can cause
	bound      chan struct{}    // closed at the first bind
	done       chan struct{}    // closed once err is set
	handshakes chan struct{}    // a slot per unfinished handshake
	running    sync.WaitGroup
	budget     *budget // for frames that no caller has read yet

	mu           sync.Mutex
	err          error               // guarded by mu; why the link ended
	listener     *net.UnixListener   // guarded by mu
	at           os.FileInfo         // guarded by mu; the socket file of this link
	handshaking  map[net.Conn]bool   // guarded by mu; connections in handshake
	peer         *peer               // guarded by mu; the bound connection, if any
	lastID       uint64              // guarded by mu
	pending      map[uint64]*pending // guarded by mu; requests without an answer
	unsent       []*pending          // guarded by mu; those of pending that peer was not sent yet
	detached     [][]byte            // guarded by mu; detach frames not sent yet
	forgets      forgetBatch         // guarded by mu
	giveUp       *time.Timer         // guarded by mu; runs while requests are pending without a peer
	unreadOutput int                 // guarded by mu; bytes of output that no caller has read yet

	quiescing bool                  // guarded by mu; no connection is accepted any more
	opening   map[string]chan *Conn // guarded by mu; streams requested but not connected, by id
	streams   map[*Conn]bool        // guarded by mu; streams that are open
}

// pending is a request without an answer.
type pending struct {
	id     uint64
	frame  []byte
	answer chan answer // has a buffer of one
	output chan []byte
	held   int    // guarded by the link's mu; bytes that the answer takes of the budget
	done   func() // tells Priority that the caller stopped waiting
}

type answer struct {
	frame Frame
	err   error
}

// Listen waits for the runner at o.Path, binds it to o.Fence whenever it connects,
// and sends it requests until Close.
func Listen(o LinkOptions) (*Link, error) {
	if err := o.Fence.Validate(); err != nil {
		return nil, err
	}
	if o.Secret == "" {
		return nil, fmt.Errorf("a link needs a secret: %w", dormouse.ErrInvalid)
	}
	o.Heartbeat = cmp.Or(o.Heartbeat, DefaultHeartbeat)
	o.ReconnectTimeout = cmp.Or(o.ReconnectTimeout, DefaultReconnectTimeout)
	o.Priority = cmp.Or(o.Priority, Priority(noPriority{}))
	l := &Link{
		opts:        o,
		lines:       lograte.New(cmp.Or(o.Logger, slog.New(slog.DiscardHandler)).Handler(), lograte.Options{}),
		bound:       make(chan struct{}),
		done:        make(chan struct{}),
		handshakes:  make(chan struct{}, maxHandshakes),
		budget:      newBudget(linkBudget),
		handshaking: make(map[net.Conn]bool),
		pending:     make(map[uint64]*pending),
		opening:     make(map[string]chan *Conn),
		streams:     make(map[*Conn]bool),
	}
	l.log = slog.New(l.lines)
	l.giveUp = time.AfterFunc(o.ReconnectTimeout, l.abandon)
	l.giveUp.Stop()
	l.forgets.due = time.AfterFunc(forgetDelay, l.flushForgets)
	l.forgets.due.Stop()
	if err := l.publish(); err != nil {
		return nil, err
	}
	l.running.Go(l.keepSocket)
	return l, nil
}

// Ready returns nil once the runner has been bound.
func (l *Link) Ready(ctx context.Context) error {
	select {
	case <-l.bound:
		return nil
	case <-l.done:
		return l.cause()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Over is closed once the link has ended.
func (l *Link) Over() <-chan struct{} { return l.done }

// Start sends c to the runner and returns nil once the runner has accepted it. It is
// idempotent: starting an op twice executes it once.
func (l *Link) Start(ctx context.Context, c Call) error {
	if err := c.Validate(); err != nil {
		return err
	}
	if _, err := l.request(ctx, Frame{Kind: KindStart, Call: &c}, nil); err != nil {
		return fmt.Errorf("start %s: %w", c.Op, err)
	}
	return nil
}

// Wait returns the result of a started op. What the op prints meanwhile goes
// to out; what out is too slow for is dropped.
func (l *Link) Wait(ctx context.Context, op dormouse.OpID, out func([]byte)) (Result, error) {
	f, err := l.request(ctx, Frame{Kind: KindWait, Op: op}, out)
	return f.result(op, err)
}

// result returns the result in the answer to a wait for op.
func (f Frame) result(op dormouse.OpID, err error) (Result, error) {
	if err == nil && (f.Report == nil || f.Report.Op != op || f.Report.State != Finished || f.Report.Result == nil) {
		err = fmt.Errorf("runner sent no result: %w", dormouse.ErrInvalid)
	}
	if err != nil {
		return Result{}, fmt.Errorf("wait for %s: %w", op, err)
	}
	return *f.Report.Result, nil
}

// Run is Start and Wait in one round trip. It calls started once the runner has
// accepted c.
func (l *Link) Run(ctx context.Context, c Call, started func(), out func([]byte)) (Result, error) {
	if err := c.Validate(); err != nil {
		return Result{}, err
	}
	asked, err := l.register(Frame{Kind: KindStart, Call: &c}, false)
	if err != nil {
		return Result{}, fmt.Errorf("start %s: %w", c.Op, err)
	}
	defer l.unregister(asked, KindStart)
	waits, err := l.register(Frame{Kind: KindWait, Op: c.Op}, out != nil)
	if err != nil {
		return Result{}, fmt.Errorf("wait for %s: %w", c.Op, err)
	}
	defer l.unregister(waits, KindWait)
	if _, err := l.await(ctx, asked, nil); err != nil {
		return Result{}, fmt.Errorf("start %s: %w", c.Op, err)
	}
	started()
	f, err := l.await(ctx, waits, out)
	return f.result(c.Op, err)
}

// Ask returns what the runner knows of an op.
func (l *Link) Ask(ctx context.Context, op dormouse.OpID) (Report, error) {
	f, err := l.request(ctx, Frame{Kind: KindAsk, Op: op}, nil)
	if err == nil {
		err = f.Report.check(op)
	}
	if err != nil {
		return Report{}, fmt.Errorf("ask for %s: %w", op, err)
	}
	return *f.Report, nil
}

func (r *Report) check(op dormouse.OpID) error {
	if r != nil && r.Op == op {
		switch r.State {
		case NeverSeen, Running:
			return nil
		case Finished:
			if r.Result != nil {
				return nil
			}
		}
	}
	return fmt.Errorf("runner sent no report: %w", dormouse.ErrInvalid)
}

// Kill ends a running op, or a task, with every process it started, and returns once
// they are gone. It does nothing to an op that has finished or was never seen.
func (l *Link) Kill(ctx context.Context, op dormouse.OpID) error {
	if _, err := l.request(ctx, Frame{Kind: KindKill, Op: op}, nil); err != nil {
		return fmt.Errorf("kill %s: %w", op, err)
	}
	return nil
}

// End makes every call of the link return err, those in progress and later ones.
func (l *Link) End(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end(err)
}

// Close disconnects from the runner, which keeps running. It waits a moment for the
// runner to close its end, so that no connection is left in a memory snapshot.
func (l *Link) Close() error {
	l.mu.Lock()
	l.closeStreams()
	p := l.peer
	l.mu.Unlock()
	if p != nil {
		p.hangUp(closeTimeout)
	}
	l.End(ErrClosed)
	l.running.Wait()
	l.lines.Flush()
	return nil
}

// Quiesce makes the runner end its ops, but not its tasks, shells and terminals, and
// close every connection. It returns once the runner has done so. The runner cannot
// connect again before another link listens. The link ends even if Quiesce fails.
func (l *Link) Quiesce(ctx context.Context) error {
	p, err := l.stopAccepting()
	if err != nil {
		return fmt.Errorf("quiesce: %w", err)
	}
	defer l.End(ErrQuiesced)
	if p == nil {
		return nil // no runner is connected, and none can connect
	}
	ctx, cancel := context.WithTimeoutCause(ctx, l.opts.ReconnectTimeout, ErrUnreachable)
	defer cancel()
	asked, err := l.register(Frame{Kind: KindQuiesce}, false)
	if err != nil {
		return fmt.Errorf("quiesce: %w", err)
	}
	defer l.unregister(asked, KindQuiesce)
	for {
		select {
		case <-p.done: // the answer may be lost with the connection; its end is enough
			return nil
		case a := <-asked.answer:
			if a.err != nil {
				return fmt.Errorf("quiesce: %w", a.err)
			}
		case <-ctx.Done():
			return fmt.Errorf("quiesce: %w", context.Cause(ctx))
		}
	}
}

// end must be called with mu held.
func (l *Link) end(err error) {
	if l.err != nil {
		return
	}
	l.err = err
	close(l.done)
	l.giveUp.Stop()
	l.forgets.due.Stop()
	_ = l.listener.Close()
	for c := range l.handshaking {
		_ = c.Close()
	}
	l.closeStreams()
	if l.peer != nil {
		l.peer.close()
	}
}

func (l *Link) cause() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// request sends f until it is answered.
func (l *Link) request(ctx context.Context, f Frame, out func([]byte)) (Frame, error) {
	p, err := l.register(f, out != nil)
	if err != nil {
		return Frame{}, err
	}
	defer l.unregister(p, f.Kind)
	return l.await(ctx, p, out)
}

// await returns the answer to a request.
func (l *Link) await(ctx context.Context, p *pending, out func([]byte)) (Frame, error) {
	for {
		select {
		case b := <-p.output:
			l.releaseOutput(b)
			out(b)
		case a := <-p.answer:
			for len(p.output) > 0 {
				b := <-p.output
				l.releaseOutput(b)
				out(b)
			}
			return a.frame, a.err
		case <-l.done:
			return Frame{}, l.cause()
		case <-ctx.Done():
			return Frame{}, context.Cause(ctx)
		}
	}
}

func (l *Link) register(f Frame, live bool) (_ *pending, err error) {
	p := &pending{answer: make(chan answer, 1), done: l.opts.Priority.Wait()}
	defer func() {
		if err != nil {
			p.done()
		}
	}()
	if live {
		p.output = make(chan []byte, outputDepth)
	}
	l.mu.Lock()
	l.lastID++
	p.id = l.lastID
	l.mu.Unlock()

	f.ID, f.Fence = p.id, &l.opts.Fence
	frame, err := AppendFrame(nil, f)
	if err != nil {
		return nil, err
	}
	p.frame = frame

	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return nil, l.err
	}
	l.forgets.flushBefore(f)
	l.pending[p.id] = p
	if l.peer == nil {
		if len(l.pending) == 1 {
			l.giveUp.Reset(l.opts.ReconnectTimeout)
		}
		return p, nil
	}
	l.unsent = append(l.unsent, p)
	l.peer.wake()
	return p, nil
}

// releaseOutput counts output as read by the caller.
func (l *Link) releaseOutput(b []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unreadOutput -= len(b)
}

func (l *Link) unregister(p *pending, kind Kind) {
	p.done()
	l.mu.Lock()
	defer l.mu.Unlock()
	waits := l.pending[p.id] == p
	delete(l.pending, p.id)
	for len(p.output) > 0 {
		l.unreadOutput -= len(<-p.output)
	}
	l.budget.release(p.held)
	p.held = 0
	if !waits {
		return
	}
	if kind != KindWait || l.peer == nil {
		return
	}
	if b, err := AppendFrame(nil, Frame{Kind: KindDetach, ID: p.id}); err == nil {
		l.detached = append(l.detached, b)
		l.peer.wake()
	}
}

// abandon fails the pending requests after ReconnectTimeout.
func (l *Link) abandon() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.peer != nil {
		return
	}
	for id, p := range l.pending {
		delete(l.pending, id)
		p.answer <- answer{err: ErrUnreachable}
	}
}

// adopt makes p the connection that requests go to.
func (l *Link) adopt(p *peer) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil || l.quiescing {
		return false
	}
	if l.peer != nil {
		l.peer.close() // the runner reconnected before we noticed the loss
	}
	l.peer = p
	l.giveUp.Stop()
	l.detached = nil
	l.unsent = make([]*pending, 0, len(l.pending))
	for _, q := range l.pending {
		l.unsent = append(l.unsent, q)
	}
	slices.SortFunc(l.unsent, func(a, b *pending) int { return cmp.Compare(a.id, b.id) })
	select {
	case <-l.bound:
	default:
		close(l.bound)
	}
	return true
}

func (l *Link) drop(p *peer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.peer != p {
		return
	}
	l.peer = nil
	l.unsent, l.detached = nil, nil
	if l.err == nil && len(l.pending) > 0 {
		l.giveUp.Reset(l.opts.ReconnectTimeout)
	}
}

// takeUnsent returns the frames that p was not sent yet, and counts them as sent.
func (l *Link) takeUnsent(p *peer) []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.peer != p {
		return nil
	}
	frames := l.forgets.take(l.opts.Fence)
	for _, q := range l.unsent {
		if l.pending[q.id] == q {
			frames = append(frames, q.frame...)
		}
	}
	for _, b := range l.detached {
		frames = append(frames, b...)
	}
	l.unsent, l.detached = nil, nil
	return frames
}

// confirmStale checks a runner's claim that it knows a newer epoch. It returns ErrStale
// if that is true, and another error if it is not.
func (l *Link) confirmStale() error {
	if l.opts.Known == "" {
		return ErrStale
	}
	if err := l.opts.Known.Check(l.opts.Fence); err != nil {
		return err
	}
	return fmt.Errorf("runner claims a newer epoch than there is: %w", dormouse.ErrInvalid)
}

// deliver hands a frame of the runner to the request it belongs to. No frame can block
// it or make it keep more than a bound: an answer returns its size to the budget when
// its caller is done, every other frame at once.
func (l *Link) deliver(f Frame, size int) {
	refused := f.err()
	if f.Refusal == RefusedStale {
		refused = l.confirmStale()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.pending[f.ID]
	if p == nil || f.Kind != KindReply {
		l.budget.release(size)
	}
	switch f.Kind {
	case KindReply:
		if p == nil {
			return
		}
		p.held = size
		delete(l.pending, f.ID)
		p.answer <- answer{f, refused}
		if errors.Is(refused, ErrStale) {
			l.end(ErrStale)
		}
	case KindOutput:
		if p == nil || p.output == nil || l.unreadOutput+len(f.Output) > maxUnreadOutput {
			return
		}
		select {
		case p.output <- f.Output:
			l.unreadOutput += len(f.Output)
		default:
		}
	case KindRefused:
		if errors.Is(refused, ErrStale) {
			l.end(ErrStale)
		}
	case KindHello, KindBind, KindBound, KindStart, KindWait, KindAsk, KindKill, KindForget, KindDetach, KindHeartbeat,
		KindOpen, KindStream, KindTerminals, KindResize, KindEndTerminal, KindPorts, KindUsage, KindRelieve, KindQuiesce:
	}
}
