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
	DefaultBeat     = time.Second
	DefaultPatience = 10 * time.Second

	// silentBeats is how many beats a peer may miss before it counts as lost.
	silentBeats = 5
	// maxHandshakes bounds the connections that nobody has vouched for yet.
	maxHandshakes = 16
	// outputDepth bounds the output a slow reader of a wait may be behind.
	outputDepth = 64
	// maxShown bounds the bytes of output that all slow readers may be behind.
	maxShown = 8 << 20
	// farewell bounds how long Close waits for the runner to let go.
	farewell = 250 * time.Millisecond
)

// What ended a link.
var (
	// ErrClosed means that the link was closed by its owner.
	ErrClosed = errors.New("link is closed")
	// ErrQuiesced means that the runner was told to let go of its connections.
	ErrQuiesced = errors.New("link was quiesced")
)

// LinkOptions says which runner a link is for.
type LinkOptions struct {
	// Path is where the runner dials; the link takes the place from any before it.
	Path string
	// Secret is what the runner must know.
	Secret string
	// Fence is what the runner is bound to and every request carries.
	Fence Fence
	// Known is where the newest fence of the sandbox is kept. A runner that claims
	// to know a newer one is believed if it says so too. Without it every claim is
	// believed.
	Known  FenceFile
	Logger *slog.Logger
	// Beat is the time between two signs of life, zero for a second.
	Beat time.Duration
	// Patience is how long a call waits for a lost runner before it returns
	// ErrUnreachable, zero for ten seconds.
	Patience time.Duration
	// Attention is told of every request, before the runner is. It may be nil.
	Attention Attention
}

// Link is the server's end: one runner as one server reaches it, across as
// many connections as it takes. Requests that a lost connection left
// unanswered are sent again; the runner acts on each op once.
type Link struct {
	opts    LinkOptions
	log     *slog.Logger
	lines   *lograte.Handler // behind log: whoever is inside can cause any of them
	bound   chan struct{}    // closed at the first bind
	done    chan struct{}    // closed once err is set
	shaking chan struct{}    // a slot per unfinished handshake
	running sync.WaitGroup
	budget  *budget // for frames that nobody has taken yet

	mu       sync.Mutex
	err      error               // guarded by mu; why the link is over
	listener *net.UnixListener   // guarded by mu
	at       os.FileInfo         // guarded by mu; the socket file that is ours
	strays   map[net.Conn]bool   // guarded by mu; connections in handshake
	peer     *peer               // guarded by mu; the bound connection, if any
	lastID   uint64              // guarded by mu
	pending  map[uint64]*pending // guarded by mu; requests without an answer
	fresh    []*pending          // guarded by mu; of these, what peer was not sent yet
	detached [][]byte            // guarded by mu; detach frames not sent yet
	forgets  forgets             // guarded by mu
	giveUp   *time.Timer         // guarded by mu; runs while a request has no peer
	shown    int                 // guarded by mu; bytes of output that nobody has taken yet

	quiet   bool                  // guarded by mu; no runner is let in any more
	opening map[string]chan *Conn // guarded by mu; streams asked for, by id
	streams map[*Conn]bool        // guarded by mu; streams that are open
}

// pending is a request on its way to an answer.
type pending struct {
	id     uint64
	frame  []byte
	answer chan answer // holds one
	output chan []byte
	held   int    // guarded by the link's mu; bytes of its budget that the answer has
	done   func() // nobody waits for it any more
}

type answer struct {
	frame Frame
	err   error
}

// Listen waits for the runner at o.Path, binds it to o.Fence whenever it
// comes, and carries requests to it until Close.
func Listen(o LinkOptions) (*Link, error) {
	if err := o.Fence.Validate(); err != nil {
		return nil, err
	}
	if o.Secret == "" {
		return nil, fmt.Errorf("a link needs a secret: %w", dormouse.ErrInvalid)
	}
	o.Beat = cmp.Or(o.Beat, DefaultBeat)
	o.Patience = cmp.Or(o.Patience, DefaultPatience)
	o.Attention = cmp.Or(o.Attention, Attention(nobody{}))
	l := &Link{
		opts:    o,
		lines:   lograte.New(cmp.Or(o.Logger, slog.New(slog.DiscardHandler)).Handler(), lograte.Options{}),
		bound:   make(chan struct{}),
		done:    make(chan struct{}),
		shaking: make(chan struct{}, maxHandshakes),
		budget:  newBudget(linkBudget),
		strays:  make(map[net.Conn]bool),
		pending: make(map[uint64]*pending),
		opening: make(map[string]chan *Conn),
		streams: make(map[*Conn]bool),
	}
	l.log = slog.New(l.lines)
	l.giveUp = time.AfterFunc(o.Patience, l.abandon)
	l.giveUp.Stop()
	l.forgets.due = time.AfterFunc(lull, l.nudge)
	l.forgets.due.Stop()
	if err := l.publish(); err != nil {
		return nil, err
	}
	l.running.Go(l.keepPlace)
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

// Over is closed once the link is over.
func (l *Link) Over() <-chan struct{} { return l.done }

// Start asks the runner for c and returns nil once the runner has it. Starting
// the same op twice acts once.
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
// to out, as far as out keeps up.
func (l *Link) Wait(ctx context.Context, op dormouse.OpID, out func([]byte)) (Result, error) {
	f, err := l.request(ctx, Frame{Kind: KindWait, Op: op}, out)
	return f.result(op, err)
}

// result is what a wait for op was answered with.
func (f Frame) result(op dormouse.OpID, err error) (Result, error) {
	if err == nil && (f.Report == nil || f.Report.Op != op || f.Report.State != Finished || f.Report.Result == nil) {
		err = fmt.Errorf("runner sent no result: %w", dormouse.ErrInvalid)
	}
	if err != nil {
		return Result{}, fmt.Errorf("wait for %s: %w", op, err)
	}
	return *f.Report.Result, nil
}

// Run asks the runner for c and returns its result: Start and Wait, without the time
// between them. Once the runner has it, started is called.
func (l *Link) Run(ctx context.Context, c Call, started func(), out func([]byte)) (Result, error) {
	if err := c.Validate(); err != nil {
		return Result{}, err
	}
	asked, err := l.enter(Frame{Kind: KindStart, Call: &c}, false)
	if err != nil {
		return Result{}, fmt.Errorf("start %s: %w", c.Op, err)
	}
	defer l.leave(asked, KindStart)
	waits, err := l.enter(Frame{Kind: KindWait, Op: c.Op}, out != nil)
	if err != nil {
		return Result{}, fmt.Errorf("wait for %s: %w", c.Op, err)
	}
	defer l.leave(waits, KindWait)
	if _, err := l.attend(ctx, asked, nil); err != nil {
		return Result{}, fmt.Errorf("start %s: %w", c.Op, err)
	}
	started()
	f, err := l.attend(ctx, waits, out)
	return f.result(c.Op, err)
}

// Ask says what the runner knows of an op.
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

// Kill ends a running op and everything it started, and returns once they are
// gone. A task is ended too. Any other op that is over, or was never seen, is
// left alone.
func (l *Link) Kill(ctx context.Context, op dormouse.OpID) error {
	if _, err := l.request(ctx, Frame{Kind: KindKill, Op: op}, nil); err != nil {
		return fmt.Errorf("kill %s: %w", op, err)
	}
	return nil
}

// End makes the link return err from every call, now and later.
func (l *Link) End(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end(err)
}

// Close lets go of the runner, which lives on. It waits a moment for the runner
// to hang up, so that a sandbox can be frozen with no connection in it.
func (l *Link) Close() error {
	l.mu.Lock()
	l.closeStreams()
	p := l.peer
	l.mu.Unlock()
	if p != nil {
		p.hangUp(farewell)
	}
	l.End(ErrClosed)
	l.running.Wait()
	l.lines.Flush()
	return nil
}

// Quiesce makes the runner end its ops, though not its tasks, shells and terminals,
// and let go of every connection, and returns once it has.
// Nobody can dial again until another link listens. The link is over after
// that, however it went.
func (l *Link) Quiesce(ctx context.Context) error {
	p, err := l.hush()
	if err != nil {
		return fmt.Errorf("quiesce: %w", err)
	}
	defer l.End(ErrQuiesced)
	if p == nil {
		return nil // nobody is connected, and nobody can connect
	}
	ctx, cancel := context.WithTimeoutCause(ctx, l.opts.Patience, ErrUnreachable)
	defer cancel()
	asked, err := l.enter(Frame{Kind: KindQuiesce}, false)
	if err != nil {
		return fmt.Errorf("quiesce: %w", err)
	}
	defer l.leave(asked, KindQuiesce)
	for {
		select {
		case <-p.done: // the answer may be lost with the connection: its end is what matters
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
	for c := range l.strays {
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
	p, err := l.enter(f, out != nil)
	if err != nil {
		return Frame{}, err
	}
	defer l.leave(p, f.Kind)
	return l.attend(ctx, p, out)
}

// attend returns what a request is answered with.
func (l *Link) attend(ctx context.Context, p *pending, out func([]byte)) (Frame, error) {
	for {
		select {
		case b := <-p.output:
			l.taken(b)
			out(b)
		case a := <-p.answer:
			for len(p.output) > 0 {
				b := <-p.output
				l.taken(b)
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

func (l *Link) enter(f Frame, live bool) (_ *pending, err error) {
	p := &pending{answer: make(chan answer, 1), done: l.opts.Attention.Wait()}
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
	l.forgets.before(f)
	l.pending[p.id] = p
	if l.peer == nil {
		if len(l.pending) == 1 {
			l.giveUp.Reset(l.opts.Patience)
		}
		return p, nil
	}
	l.fresh = append(l.fresh, p)
	l.peer.nudge()
	return p, nil
}

// taken says that somebody has taken output.
func (l *Link) taken(b []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shown -= len(b)
}

func (l *Link) leave(p *pending, kind Kind) {
	p.done()
	l.mu.Lock()
	defer l.mu.Unlock()
	waits := l.pending[p.id] == p
	delete(l.pending, p.id)
	for len(p.output) > 0 {
		l.shown -= len(<-p.output)
	}
	l.budget.give(p.held)
	p.held = 0
	if !waits {
		return
	}
	if kind != KindWait || l.peer == nil {
		return
	}
	if b, err := AppendFrame(nil, Frame{Kind: KindDetach, ID: p.id}); err == nil {
		l.detached = append(l.detached, b)
		l.peer.nudge()
	}
}

// abandon answers what has waited out the link's patience.
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
	if l.err != nil || l.quiet {
		return false
	}
	if l.peer != nil {
		l.peer.close() // the runner has come back before we missed it
	}
	l.peer = p
	l.giveUp.Stop()
	l.detached = nil
	l.fresh = make([]*pending, 0, len(l.pending))
	for _, q := range l.pending {
		l.fresh = append(l.fresh, q)
	}
	slices.SortFunc(l.fresh, func(a, b *pending) int { return cmp.Compare(a.id, b.id) })
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
	l.fresh, l.detached = nil, nil
	if l.err == nil && len(l.pending) > 0 {
		l.giveUp.Reset(l.opts.Patience)
	}
}

// unsent takes what p has yet to be sent.
func (l *Link) unsent(p *peer) []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.peer != p {
		return nil
	}
	frames := l.forgets.take(l.opts.Fence)
	for _, q := range l.fresh {
		if l.pending[q.id] == q {
			frames = append(frames, q.frame...)
		}
	}
	for _, b := range l.detached {
		frames = append(frames, b...)
	}
	l.fresh, l.detached = nil, nil
	return frames
}

// outrun returns ErrStale if the runner, which claims to know a newer epoch, is
// right, and else that it is not.
func (l *Link) outrun() error {
	if l.opts.Known == "" {
		return ErrStale
	}
	if err := l.opts.Known.Check(l.opts.Fence); err != nil {
		return err
	}
	return fmt.Errorf("runner claims a newer epoch than there is: %w", dormouse.ErrInvalid)
}

// deliver hands a frame of the runner to whom it is for. Nothing a runner can
// send blocks here or is kept beyond a bound: the size of an answer is given back to
// the budget when whoever asked is done, anything else's at once.
func (l *Link) deliver(f Frame, size int) {
	refused := f.err()
	if f.Refusal == RefusedStale {
		refused = l.outrun()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.pending[f.ID]
	if p == nil || f.Kind != KindReply {
		l.budget.give(size)
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
		if p == nil || p.output == nil || l.shown+len(f.Output) > maxShown {
			return
		}
		select {
		case p.output <- f.Output:
			l.shown += len(f.Output)
		default:
		}
	case KindRefused:
		if errors.Is(refused, ErrStale) {
			l.end(ErrStale)
		}
	case KindHello, KindBind, KindBound, KindStart, KindWait, KindAsk, KindKill, KindForget, KindDetach, KindBeat,
		KindOpen, KindStream, KindTerminals, KindResize, KindEndTerminal, KindPorts, KindUsage, KindRelieve, KindQuiesce:
	}
}
