package dormouse

import (
	"bytes"
	"encoding/json"
)

// Encode encodes a payload as it is stored and streamed. Every payload is a
// struct of plain fields, so that failing to is a bug.
func Encode(p any) json.RawMessage {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // what was written is what is shown
	if err := enc.Encode(p); err != nil {
		panic("dormouse: payload cannot be encoded: " + err.Error())
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
