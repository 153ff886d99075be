package main

import (
	"fmt"
	"io"
	"time"
)

// progress prints how far a transfer is: often on a terminal, every few seconds elsewhere.
type progress struct {
	out   io.Writer
	every time.Duration
	line  string    // how a line begins
	end   string    // and how it ends
	last  time.Time // when it was printed last
}

func newProgress(out io.Writer) *progress {
	if isTerminal(out) {
		return &progress{out: out, every: 200 * time.Millisecond, line: "\r\x1b[K"}
	}
	return &progress{out: out, every: 10 * time.Second, end: "\n", last: time.Now()}
}

// Update prints the progress, unless it did so a moment ago.
func (p *progress) Update(format string, args ...any) {
	if now := time.Now(); now.Sub(p.last) >= p.every {
		p.last = now
		fmt.Fprintf(p.out, p.line+format+p.end, args...)
	}
}

// Note prints a line that is not overwritten.
func (p *progress) Note(format string, args ...any) {
	fmt.Fprintf(p.out, p.line+format+"\n", args...)
}

// done clears the line of a terminal.
func (p *progress) done() { fmt.Fprint(p.out, p.line) }

// plural is n of a thing.
func plural[N int | uint64](n N, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
