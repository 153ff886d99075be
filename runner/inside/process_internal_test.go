//go:build linux

package inside

import (
	"bytes"
	"os"
	"sync"
	"testing"
	"time"
)

// TestSealLosesNothingThatWasPrintedBefore seals before anything is read, as on a
// machine that stood still while a command printed and exited, and something
// that it left behind holds its output open.
func TestSealLosesNothingThatWasPrintedBefore(t *testing.T) {
	pr, pw, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p := newOutput(pr)
	printed := bytes.Repeat([]byte("printed "), 6000) // less than a pipe holds, more than one read
	if _, err := pw.Write(printed); err != nil {
		t.Fatal(err)
	}
	close(p.sealing) // as seal does, but before drain begins
	if err := pr.SetReadDeadline(time.Now()); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	var reading sync.WaitGroup
	reading.Go(func() { p.drain(&out) })
	<-p.sealed
	if !bytes.Equal(out.Bytes(), printed) {
		t.Errorf("%d of %d bytes came out", out.Len(), len(printed))
	}
	// Later output is read, so that no process blocks on printing, and dropped.
	for range 10 {
		if _, err := pw.Write(printed); err != nil {
			t.Fatal(err)
		}
	}
	if err := pw.Close(); err != nil {
		t.Fatal(err)
	}
	reading.Wait()
	if out.Len() != len(printed) {
		t.Errorf("%d bytes came out in the end, want %d", out.Len(), len(printed))
	}
	if err := pr.Close(); err != nil {
		t.Fatal(err)
	}
}
