package runner_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/runner"
)

func TestFrameSurvivesTheWire(t *testing.T) {
	frames := []runner.Frame{
		{Kind: runner.KindHeartbeat},
		{Kind: runner.KindHello, Hello: &runner.Hello{Protocol: 1, Secret: "s"}},
		{Kind: runner.KindStart, ID: 7, Fence: &runner.Fence{Session: "sesn_1", Generation: 2, Epoch: 3}, Call: &runner.Call{
			Op: "op_1", Kind: dormouse.OpWrite, Write: &runner.Write{Path: "<a&b>", Content: []byte{0, 0xff, '\n'}},
		}},
		{Kind: runner.KindStart, ID: 8, Call: &runner.Call{
			Op: "op_2", Kind: dormouse.OpWrite, Edit: &runner.Edit{Path: "a", New: []byte("new"), All: true},
		}},
		{Kind: runner.KindReply, ID: 7, Report: &runner.Report{Op: "op_1", State: runner.Finished, Result: &runner.Result{Exit: 130, Output: []byte("x")}}},
		{Kind: runner.KindOutput, ID: 7, Output: []byte{0xff, 0}},
	}
	var wire []byte
	for _, f := range frames {
		before := len(wire)
		var err error
		if wire, err = runner.AppendFrame(wire, f); err != nil {
			t.Fatal(err)
		}
		if f.Kind == runner.KindOutput && !bytes.HasSuffix(wire[before:], f.Output) {
			t.Errorf("output travels as %q", wire[before:])
		}
	}
	r := bytes.NewReader(wire)
	for _, want := range frames {
		got, err := runner.ReadFrame(r, runner.FromServer())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("frame changed on the wire (-sent +received):\n%s", diff)
		}
	}
}

func TestSendingLeavesTheFrameAlone(t *testing.T) {
	f := runner.Frame{Kind: runner.KindReply, Report: &runner.Report{Op: "op_1", Result: &runner.Result{Output: []byte("kept")}}}
	if _, err := runner.AppendFrame(nil, f); err != nil {
		t.Fatal(err)
	}
	if got := string(f.Report.Result.Output); got != "kept" {
		t.Errorf("the sender is left with %q", got)
	}
}

func TestFrameOverTheLimitIsRefusedByBothEnds(t *testing.T) {
	if _, err := runner.AppendFrame(nil, runner.Frame{Kind: runner.KindOutput, Output: make([]byte, runner.MaxFrame)}); !errors.Is(err, dormouse.ErrTooLarge) {
		t.Errorf("sent: %v", err)
	}
	for name, lengths := range map[string][2]uint32{
		"head": {uint32(runner.FromRunner().Head) + 1, 0},
		"body": {2, uint32(runner.FromRunner().Body) + 1},
		"both": {1<<32 - 1, 1<<32 - 1},
	} {
		b := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, lengths[0]), lengths[1])
		if _, err := runner.ReadFrame(bytes.NewReader(b), runner.FromRunner()); !errors.Is(err, dormouse.ErrTooLarge) {
			t.Errorf("received with a large %s: %v", name, err)
		}
	}
}

// wire is a frame as a hostile runner may send it.
func wire(head string, body []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(head)))
	b = binary.BigEndian.AppendUint32(b, uint32(len(body)))
	return append(append(b, head...), body...)
}

func TestValuesAreCountedBeforeTheyTakeMemory(t *testing.T) {
	fill := func(unit string) string {
		return strings.Repeat(unit+",", runner.FromRunner().Head/(len(unit)+1)-100) + unit
	}
	for name, head := range map[string]string{
		"ops":       `{"kind":"reply","ops":[` + fill(`""`) + `]}`,
		"terminals": `{"kind":"reply","terminals":[` + fill(`{}`) + `]}`,
		"commands":  `{"kind":"reply","terminals":[{"command":[` + fill(`""`) + `]}]}`,
		"ports":     `{"kind":"reply","ports":[` + fill(`{}`) + `]}`,
		"victims":   `{"kind":"reply","victims":[` + fill(`{}`) + `]}`,
		"bulk":      `{"kind":"output","bulk":[` + fill(`0`) + `]}`,
		"unknown":   `{"kind":"reply","x":[` + fill(`{}`) + `]}`,
		"fields":    `{"kind":"reply",` + fill(`"x":0`) + `}`,
		"depth":     `{"kind":"reply","x":` + strings.Repeat("[", 1000) + strings.Repeat("]", 1000) + `}`,
		"a quote":   `{"kind":"\\","ports":[` + fill(`{}`) + `]}`,
	} {
		if len(head) > runner.FromRunner().Head {
			t.Fatalf("%s: %d bytes are refused for their number", name, len(head))
		}
		got := testing.AllocsPerRun(5, func() {
			if _, err := runner.ReadFrame(bytes.NewReader(wire(head, nil)), runner.FromRunner()); !errors.Is(err, dormouse.ErrTooLarge) {
				t.Errorf("%s: %v", name, err)
			}
		})
		if got > 100 {
			t.Errorf("%s: %v allocations", name, got)
		}
	}
}

func TestBulkIsWhereItBelongs(t *testing.T) {
	for name, b := range map[string][]byte{
		"none where some belongs": wire(`{"kind":"output"}`, nil),
		"some where none belongs": wire(`{"kind":"beat","bulk":[1]}`, []byte("x")),
		"more than is said":       wire(`{"kind":"output","bulk":[1]}`, []byte("xy")),
		"less than is said":       wire(`{"kind":"output","bulk":[2]}`, []byte("x")),
		"less than none":          wire(`{"kind":"output","bulk":[-1]}`, []byte("x")),
		"without a place":         wire(`{"kind":"beat"}`, []byte("x")),
	} {
		if f, err := runner.ReadFrame(bytes.NewReader(b), runner.FromRunner()); !errors.Is(err, dormouse.ErrInvalid) {
			t.Errorf("%s: %+v, %v", name, f, err)
		}
	}
	f, err := runner.ReadFrame(bytes.NewReader(wire(`{"kind":"output","output":"eHh4","bulk":[0]}`, nil)), runner.FromRunner())
	if err != nil || len(f.Output) > 0 {
		t.Errorf("output in the head: %q, %v", f.Output, err)
	}
}
