package rest

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/dormouse-run/dormouse"
)

func TestALongAnswerIsTheSameInPieces(t *testing.T) {
	for name, output := range map[string]string{
		"nothing":       "",
		"short":         "a \"word\" <b>\n",
		"zeros":         strings.Repeat("\x00", 3*maxOutputPart+1),
		"wide":          "a" + strings.Repeat("ä€😀", maxOutputPart),
		"no text":       strings.Repeat("\xff\xfea", maxOutputPart),
		"a whole piece": strings.Repeat("x", maxOutputPart),
	} {
		t.Run(name, func(t *testing.T) {
			want := execOf(dormouse.ExecAnswer{Exec: "sevt_1", Exit: 3, Output: []byte(output), Omitted: 7, Error: "out of <memory>", TimedOut: true})
			var printed bytes.Buffer
			encode(want, func(b []byte) { printed.Write(b) })
			var got Exec
			if err := json.Unmarshal(printed.Bytes(), &got); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%v: %.300s", err, printed.String())
			}
		})
	}
}
