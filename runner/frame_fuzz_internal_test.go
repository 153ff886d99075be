package runner

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"runtime/metrics"
	"strings"
	"testing"
	"unicode/utf8"
)

// Each kind of frame that a server reads is decoded from whatever a sandbox may
// send: without a panic, in memory that the bytes it sent can account for, and so
// that what comes out can be shown to people.

func FuzzHelloFrame(f *testing.F) {
	fuzzFrame(f, KindHello, FromUnauthenticated(), `{"hello":{"protocol":3,"secret":"s","fence":{"session":"sesn_1","generation":1,"epoch":18446744073709551615}}}`)
}

func FuzzStreamFrame(f *testing.F) {
	fuzzFrame(f, KindStream, FromUnauthenticated(), `{"stream_id":"x","hello":{"protocol":3,"secret":"s"}}`)
}

func FuzzBoundFrame(f *testing.F) { fuzzFrame(f, KindBound, FromUnauthenticated(), `{}`) }

func FuzzRefusedFrame(f *testing.F) {
	fuzzFrame(f, KindRefused, FromRunner(), `{"refusal":"stale","detail":"\u001b[31m\u202e"}`)
}

func FuzzReplyFrame(f *testing.F) {
	fuzzFrame(f, KindReply, FromRunner(),
		`{"id":1,"report":{"op":"op_1","state":"finished","result":{"exit":-1,"omitted":-5,"error":"\n\r","media":"text/html","file":"/a","pid":-1}},"bulk":[3]}`,
		`{"id":2,"terminals":[{"id":"a","command":["sh","-c"],"pid":1,"rows":1,"cols":1,"exit":0}]}`,
		`{"id":3,"ports":[{"port":80,"address":"::","pid":1,"command":"x"}]}`,
		`{"id":4,"usage":{"processes":-1,"rss":-1,"cpu":-9223372036854775808,"active":"2026-01-01T00:00:00Z"}}`,
		`{"id":5,"victims":[{"pid":1,"command":"\u009b","rss":1,"told":true}]}`,
		`{"id":6,"refusal":"invalid","detail":"x"}`,
	)
}

func FuzzOutputFrame(f *testing.F) {
	fuzzFrame(f, KindOutput, FromRunner(), `{"id":1,"bulk":[3]}`)
}

func FuzzBeatFrame(f *testing.F) { fuzzFrame(f, KindHeartbeat, FromRunner(), `{}`) }

// FuzzRawFrame is whatever bytes there are.
func FuzzRawFrame(f *testing.F) {
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0})
	f.Add([]byte{0, 0, 0, 2, 0, 0, 0, 1, '{', '}', 'x'})
	f.Fuzz(func(t *testing.T, b []byte) { decodes(t, b, FromRunner()) })
}

func fuzzFrame(f *testing.F, kind Kind, within Bounds, heads ...string) {
	for _, head := range heads {
		f.Add(head, []byte("out"))
		f.Add(head, []byte(nil))
	}
	f.Add(`{"ports":[{},{},{}],"ops":["",""],"terminals":[{"command":["",""]}],"victims":[{},{}]}`, []byte("x"))
	f.Fuzz(func(t *testing.T, head string, body []byte) {
		if rest, ok := strings.CutPrefix(head, "{"); ok {
			head = `{"kind":"` + string(kind) + `",` + rest
			if strings.TrimSpace(rest) == "}" {
				head = `{"kind":"` + string(kind) + `"}`
			}
		}
		b := binary.BigEndian.AppendUint32(nil, uint32(len(head)))
		b = binary.BigEndian.AppendUint32(b, uint32(len(body)))
		decodes(t, append(append(b, head...), body...), within)
	})
}

// decodes reads one frame and holds it against what is promised.
func decodes(t *testing.T, b []byte, within Bounds) {
	var f Frame
	var err error
	// A value is at most a few hundred bytes, and slices of them double as they grow.
	const least, perByte, perValue = 1 << 20, 8, 1 << 10
	bounded(t, uint64(least+perByte*len(b)+perValue*min(len(b), within.Values)), func() {
		if f, err = ReadFrame(bytes.NewReader(b), within); err == nil {
			sanitize(&f)
		}
	})
	if err != nil {
		return
	}
	texts := []string{f.Detail}
	if f.Report != nil && f.Report.Result != nil {
		r := f.Report.Result
		texts = append(texts, r.Error, r.Note, r.File, r.Log, r.Media)
		if r.Omitted < 0 || r.Size < 0 || r.Count < 0 || r.PID < 0 {
			t.Errorf("numbers of nothing: %+v", r)
		}
	}
	for _, p := range f.Ports {
		texts = append(texts, p.Address, p.Command)
	}
	for _, v := range f.Victims {
		texts = append(texts, v.Command, v.String())
	}
	for _, v := range f.Terminals {
		texts = append(append(texts, v.ID), v.Command...)
	}
	for _, text := range texts {
		if len(text) > maxReason || !utf8.ValidString(text) || strings.ContainsFunc(text, unprintable) {
			t.Errorf("%q would be shown", text)
		}
	}
	if len(f.Output) > maxOutput {
		t.Errorf("%d bytes of output", len(f.Output))
	}
	again(t, f)
}

// again sends what was received once more, and receives the same.
func again(t *testing.T, f Frame) {
	b, err := AppendFrame(nil, f)
	if err != nil {
		t.Fatal(err)
	}
	got, err := ReadFrame(bytes.NewReader(b), FromServer())
	if err != nil {
		t.Fatal(err)
	}
	was, _ := json.Marshal(f)
	is, _ := json.Marshal(got)
	if !bytes.Equal(was, is) {
		t.Errorf("sent %s, received %s", was, is)
	}
}

// bounded fails a test in which something takes more memory than is right. Others in
// this process take some too, so that it is looked at more than once.
func bounded(t *testing.T, most uint64, do func()) {
	took := most + 1
	for try := 0; took > most && try < 5; try++ {
		before := allocated()
		do()
		took = allocated() - before
	}
	if took > most {
		t.Errorf("it took %d bytes of memory, at most %d are right", took, most)
	}
}

func allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
