package inside

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/runner"
)

const (
	journalFile = "ops"
	outputDir   = "output"

	// maxInline is the largest output that is stored in the journal itself.
	maxInline = 64 << 10
	// compactAbove is the size below which the journal is not compacted.
	compactAbove = 1 << 20
)

// interrupted is the result of an op whose runner ended before it did.
var interrupted = runner.Result{Exit: -1, Error: "interrupted: the runner ended before this op did"}

// entry is one line of the journal: an accepted call, a result, or a forgotten op.
type entry struct {
	Op     dormouse.OpID  `json:"op"`
	Call   *runner.Call   `json:"call,omitempty"`
	Result *runner.Result `json:"result,omitempty"`
	// Spilled means that the output is in a file named by the op.
	Spilled bool `json:"spilled,omitempty"`
	Forget  bool `json:"forget,omitempty"`
}

// journal keeps ops on disk: it appends a line before an op starts and a line once it
// has ended. It is one file because creating a file costs more than the rest of a short
// command. It must survive a crash of this process but not of the machine, which ends
// every sandbox, so it is not synced.
type journal struct {
	dir string

	mu   sync.Mutex
	file *os.File                // guarded by mu
	size int64                   // guarded by mu
	live map[dormouse.OpID]int64 // guarded by mu; the bytes of each op not forgotten
}

// openJournal loads the journal of the runner before us. Ops without a result were
// interrupted.
func openJournal(dir string) (*journal, map[dormouse.OpID]*op, error) {
	if err := os.MkdirAll(filepath.Join(dir, outputDir), 0o700); err != nil {
		return nil, nil, fmt.Errorf("open the journal: %w", err)
	}
	j := &journal{dir: dir, live: make(map[dormouse.OpID]int64)}
	ops := make(map[dormouse.OpID]*op)
	err := j.lines(func(_ []byte, e entry) {
		switch {
		case e.Forget:
			delete(ops, e.Op)
			delete(j.live, e.Op)
			return
		case e.Call != nil:
			ops[e.Op] = newOp(*e.Call)
			ops[e.Op].result = interrupted
		case e.Result != nil && ops[e.Op] != nil:
			ops[e.Op].result, ops[e.Op].spilled = *e.Result, e.Spilled
		}
		j.live[e.Op] = 0
	})
	if err == nil {
		err = j.compact()
	}
	if err != nil {
		return nil, nil, fmt.Errorf("open the journal: %w", err)
	}
	for _, o := range ops {
		o.markAccepted()
		o.complete(o.result)
	}
	return j, ops, nil
}

// lines reads the journal up to the first incomplete line. An op whose line is
// incomplete had not started.
func (j *journal) lines(each func(line []byte, e entry)) error {
	b, err := os.ReadFile(filepath.Join(j.dir, journalFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for {
		line, rest, ok := bytes.Cut(b, []byte{'\n'})
		e, valid := parse(line)
		if !ok || !valid {
			return nil
		}
		each(line, e)
		b = rest
	}
}

func parse(line []byte) (e entry, ok bool) {
	err := json.Unmarshal(line, &e)
	return e, err == nil && e.Op.Validate() == nil
}

// compact rewrites the journal without forgotten ops. It must be called with mu held or
// before j is shared.
func (j *journal) compact() error {
	var kept bytes.Buffer
	live := make(map[dormouse.OpID]int64)
	err := j.lines(func(line []byte, e entry) {
		if _, ok := j.live[e.Op]; ok && !e.Forget {
			kept.Write(line)
			kept.WriteByte('\n')
			live[e.Op] += int64(len(line)) + 1
		}
	})
	if err != nil {
		return err
	}
	name := filepath.Join(j.dir, journalFile)
	f, err := os.OpenFile(name+".new", os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if _, err = f.Write(kept.Bytes()); err == nil {
		err = os.Rename(name+".new", name)
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	if j.file != nil {
		_ = j.file.Close()
	}
	j.file, j.size, j.live = f, int64(kept.Len()), live
	return nil
}

// add appends one line atomically.
func (j *journal) add(e entry) error {
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	line = append(line, '\n')
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, err := j.file.WriteAt(line, j.size); err != nil {
		return errors.Join(err, j.file.Truncate(j.size))
	}
	j.size += int64(len(line))
	j.live[e.Op] += int64(len(line))
	if !e.Forget {
		return nil
	}
	delete(j.live, e.Op)
	var live int64
	if j.size > compactAbove {
		for _, n := range j.live {
			live += n
		}
		if live < j.size/2 {
			return j.compact()
		}
	}
	return nil
}

// accept records a call before it starts.
func (j *journal) accept(c runner.Call) error {
	c = c.Record()
	if err := j.add(entry{Op: c.Op, Call: &c}); err != nil {
		return fmt.Errorf("record %s: %w", c.Op, err)
	}
	return nil
}

// finish records the result of an op, and reports whether its output is on disk only.
func (j *journal) finish(op dormouse.OpID, res runner.Result) (spilled bool, err error) {
	if spilled = len(res.Output) > maxInline; spilled {
		if err := os.WriteFile(j.output(op), res.Output, 0o600); err != nil {
			return false, fmt.Errorf("record the output of %s: %w", op, err)
		}
		res.Output = nil
	}
	if err := j.add(entry{Op: op, Result: &res, Spilled: spilled}); err != nil {
		return false, fmt.Errorf("record the result of %s: %w", op, err)
	}
	return spilled, nil
}

func (j *journal) output(op dormouse.OpID) string {
	return filepath.Join(j.dir, outputDir, string(op))
}

// forget drops an op and its output file.
func (j *journal) forget(o *op) error {
	if err := j.add(entry{Op: o.call.Op, Forget: true}); err != nil {
		return fmt.Errorf("forget %s: %w", o.call.Op, err)
	}
	if !o.spilled {
		return nil
	}
	if err := os.Remove(j.output(o.call.Op)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget %s: %w", o.call.Op, err)
	}
	return nil
}

func (j *journal) close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.file.Close()
}
