package scripted

import (
	"bytes"
	"errors"
	"io"
)

// spoil is how a stream is broken although its connection is not.
type spoil string

const (
	truncated  spoil = "truncated"  // it ends, as if that were all
	stalled    spoil = "stalled"    // nothing more comes, and it does not end
	malformed  spoil = "malformed"  // an event is not JSON
	duplicate  spoil = "duplicate"  // an event comes twice
	disordered spoil = "disordered" // an event comes before its time
	endless    spoil = "endless"    // a line does not end
	unfinished spoil = "unfinished" // a block does not end
	uncounted  spoil = "uncounted"  // the last usage is missing
)

func spoils() []spoil {
	return []spoil{truncated, stalled, malformed, duplicate, disordered, endless, unfinished, uncounted}
}

// errEnd ends an answer without breaking its connection.
var errEnd = errors.New("the stream is said to be over")

// longLine is more than a client should ever buffer.
const longLine = 100 << 20

// sendSpoiled sends an event, unless it is the one that is to be spoiled.
func (e eventWriter) sendSpoiled(v wireEvent) error {
	begins, ends, last := v.Type == "content_block_start", v.Type == "content_block_stop", v.Type == "message_delta"
	switch {
	case e.spoil == truncated && ends:
		return errEnd
	case e.spoil == stalled && ends:
		<-e.left
		return errEnd
	case e.spoil == malformed && ends:
		return e.raw([]byte(`data: {"type":"content_block_st` + "\n\n"))
	case e.spoil == duplicate && begins:
		return e.write(v, v)
	case e.spoil == disordered && begins:
		return e.write(wireEvent{Type: "message_stop"}, v)
	case e.spoil == endless && ends:
		return e.sendLongLine()
	case e.spoil == unfinished && ends:
		return nil
	case e.spoil == uncounted && last:
		v.Usage = nil
	}
	return e.write(v)
}

func (e eventWriter) raw(b []byte) error {
	if _, err := e.w.Write(b); err != nil {
		return err
	}
	return e.flush()
}

// sendLongLine sends a line of longLine bytes.
func (e eventWriter) sendLongLine() error {
	if err := e.raw([]byte("data: ")); err != nil {
		return err
	}
	const piece = 1 << 20
	more := bytes.Repeat([]byte("x"), piece)
	for range longLine / piece {
		if err := e.raw(more); err != nil {
			return err
		}
	}
	_, err := io.WriteString(e.w, "\n\n")
	return err
}
