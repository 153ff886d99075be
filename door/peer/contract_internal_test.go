package peer

import (
	"reflect"
	"testing"

	"github.com/dormouse-run/dormouse/internal/contract"
	"github.com/dormouse-run/dormouse/session/fleet"
	"github.com/dormouse-run/dormouse/session/law"
	"github.com/dormouse-run/dormouse/session/visit"
)

// Servers of two versions speak to each other during an upgrade, and refuse a field that
// they do not know. Most verbs travel with the names of their Go fields.
func TestServersSpeakAsThoseOfTheVersionBefore(t *testing.T) {
	var lines []string
	add := func(of string, v reflect.Type) {
		for _, field := range contract.Fields(v) {
			lines = append(lines, of+" "+field)
		}
	}
	for _, r := range law.Verbs {
		if r.Wire {
			add("verb "+r.Name, reflect.TypeOf(r.Zero()))
		}
	}
	for of, v := range map[string]any{
		doPath + " asks": do{}, doPath + " answers": done{},
		followPath + " asks": follow{}, followPath + " answers": line{},
		whoPath + " answers": fleet.Server{},
		askPath + " asks":    visit.Errand{}, askPath + " answers": visit.Findings{},
		openPath + " asks": visit.Errand{},
		"refusal":          refusal{},
	} {
		add(of, reflect.TypeOf(v))
	}
	for _, route := range New(Config{}).Routes() {
		lines = append(lines, "route "+route)
	}
	for _, header := range []string{answerHeader, "version " + version, "upgrade " + protocol, notMe, inDoubt, otherRequest, staleSender} {
		lines = append(lines, "word "+header)
	}
	contract.File{Path: "testdata/contract/peer.txt"}.Check(t, lines)
}
