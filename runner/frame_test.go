package runner_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/runner"
)

func TestFrameSurvivesTheWire(t *testing.T) {
	frames := []runner.Frame{
		{Kind: runner.KindBeat},
		{Kind: runner.KindHello, Hello: &runner.Hello{Protocol: 1, Secret: "s", Ops: []runner.Report{{Op: "op_1", State: runner.Running}}}},
		{Kind: runner.KindStart, ID: 7, Fence: &runner.Fence{Session: "sesn_1", Generation: 2, Epoch: 3}, Call: &runner.Call{
			Op: "op_1", Kind: dormouse.OpWrite, Write: &runner.Write{Path: "<a&b>", Content: []byte{0, 0xff, '\n'}},
		}},
		{Kind: runner.KindReply, ID: 7, Report: &runner.Report{Op: "op_1", State: runner.Finished, Result: &runner.Result{Exit: 130, Output: []byte("x")}}},
	}
	var wire []byte
	for _, f := range frames {
		var err error
		if wire, err = runner.AppendFrame(wire, f); err != nil {
			t.Fatal(err)
		}
	}
	r := bytes.NewReader(wire)
	for _, want := range frames {
		got, err := runner.ReadFrame(r, runner.MaxFrame)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("frame changed on the wire (-sent +received):\n%s", diff)
		}
	}
}

func TestFrameOverTheLimitIsRefusedByBothEnds(t *testing.T) {
	if _, err := runner.AppendFrame(nil, runner.Frame{Output: make([]byte, runner.MaxFrame)}); !errors.Is(err, dormouse.ErrTooLarge) {
		t.Errorf("sent: %v", err)
	}
	head := binary.BigEndian.AppendUint32(nil, runner.MaxFrame+1)
	if _, err := runner.ReadFrame(bytes.NewReader(head), runner.MaxFrame); !errors.Is(err, dormouse.ErrTooLarge) {
		t.Errorf("received: %v", err)
	}
}

func FuzzFrame(f *testing.F) {
	for _, seed := range []runner.Frame{
		{Kind: runner.KindBeat},
		{Kind: runner.KindHello, Hello: &runner.Hello{Protocol: 1, Secret: "s"}},
		{Kind: runner.KindOutput, ID: 1, Output: []byte("out")},
		{Kind: runner.KindReply, ID: 1, Report: &runner.Report{Op: "op_1", State: runner.Finished, Result: &runner.Result{}}},
	} {
		b, err := runner.AppendFrame(nil, seed)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		f.Add(b[:len(b)-1])
	}
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{0, 0, 0, 2, '[', ']'})
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := runner.ReadFrame(bytes.NewReader(b), 1<<16)
		if err != nil {
			return
		}
		wire, err := runner.AppendFrame(nil, got)
		if err != nil {
			t.Fatal(err)
		}
		again, err := runner.ReadFrame(bytes.NewReader(wire), runner.MaxFrame)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(got, again); diff != "" {
			t.Errorf("frame changed on the wire (-first +second):\n%s", diff)
		}
	})
}
