package rest

import (
	"errors"
	"net/url"
	"testing"

	"github.com/dormouse-run/dormouse"
)

func FuzzDecodeSizing(f *testing.F) {
	for _, s := range []string{
		"", "{}", "null", `{"resize":{"rows":24,"cols":80}}`, `{"resize":{"rows":0,"cols":80}}`, `{"resize":{"rows":65536,"cols":80}}`,
		`{"resize":null}`, `{"resize":{"rows":1,"cols":1},"resize":{}}`, `{"Resize":{"rows":1,"cols":1}}`, "\xff",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		rows, cols, err := decodeResize(b)
		switch {
		case err != nil && !errors.Is(err, errFrame):
			t.Errorf("refused with %v", err)
		case err == nil && (rows == 0 || cols == 0):
			t.Errorf("%q is a terminal of %d by %d", b, rows, cols)
		}
	})
}

func FuzzTerminalOf(f *testing.F) {
	for _, s := range []string{"", "id=t&rows=24&cols=80&command=sh&command=-c", "rows=-1", "cols=99999", "id=%00", "command=%00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		q, err := url.ParseQuery(raw)
		if err != nil {
			return
		}
		want, err := terminalOf(q)
		switch {
		case err != nil && !errors.Is(err, dormouse.ErrInvalid):
			t.Errorf("refused with %v", err)
		case err == nil && want.ID == "":
			t.Error("it has no id")
		}
	})
}
