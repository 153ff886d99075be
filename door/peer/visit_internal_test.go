package peer

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/visit"
)

// pipe is a connection that reads what it was given and keeps what is written.
type pipe struct {
	io.Reader
	bytes.Buffer
}

func (p *pipe) Read(b []byte) (int, error) { return p.Reader.Read(b) }
func (p *pipe) Close() error               { return nil }

// wired is a wire whose two ways have the same key, so that it can read what it
// wrote.
func wired(c io.ReadWriteCloser) *wire { return newWire(c, testKey, testKey) }

func TestAWireCarriesWhatItIsGivenAndItsEnd(t *testing.T) {
	for _, size := range []int{0, 1, maxPiece - 1, maxPiece, maxPiece + 1, 5*maxPiece + 17} {
		sent := bytes.Repeat([]byte{7}, size)
		out := new(pipe)
		w := wired(out)
		if n, err := w.Write(sent); n != size || err != nil {
			t.Fatalf("%d of %d bytes, %v", n, size, err)
		}
		if err := errors.Join(w.CloseWrite(), w.CloseWrite()); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte("x")); err == nil {
			t.Error("it takes more after its end")
		}
		got, err := io.ReadAll(wired(&pipe{Reader: iotest.OneByteReader(&out.Buffer)}))
		if err != nil || !bytes.Equal(got, sent) {
			t.Errorf("%d bytes of %d, %v", len(got), size, err)
		}
	}
}

func FuzzDecodeErrand(f *testing.F) {
	for _, s := range []string{
		"", "{}", `{"session":"sesn_a","wake":true}`, `{"session":"sesn_a","generation":3,"ask":"ports"}`,
		`{"session":"sesn_a","generation":3,"ask":"resize","terminal":{"id":"t","rows":3,"cols":4}}`,
		`{"session":"sesn_a","stream":{"port":{"port":80}}}`, `{"session":"sesn_a","stream":{"terminal":{"id":"t","command":["sh"]}}}`,
		`{"session":"sesn_a","stream":{}}`, `{"levitate":1}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := decodeErrand(b)
		if err != nil {
			if !errors.Is(err, dormouse.ErrInvalid) && !errors.Is(err, errForeign) {
				t.Errorf("refused with %v", err)
			}
			return
		}
		once, err := encode(e)
		if err != nil {
			t.Fatal(err)
		}
		var again visit.Errand
		if err := decode(once, &again); err != nil {
			t.Fatalf("%s: %v", once, err)
		}
		if twice, err := encode(again); err != nil || !bytes.Equal(once, twice) {
			t.Errorf("%s became %s, %v", once, twice, err)
		}
	})
}
