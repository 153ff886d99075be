package snapshottest

import (
	"fmt"
	"strings"
)

// Mac is one that no key makes.
const Mac = "0000000000000000000000000000000000000000000000000000000000000000"

// Inner is what is in a ref, with more members if any.
func Inner(more string) string {
	return fmt.Sprintf(`{"session":"sesn_1","snapshot":"snap_1","mac":"%s"%s}`, Mac, more)
}

// Outer is a ref.
func Outer(inner string) string { return `{"providerId":"dormouse","ref":` + inner + `}` }

// HostileRefs are none.
func HostileRefs() map[string]string {
	snapshot := func(id string) string { return Outer(strings.Replace(Inner(""), "snap_1", id, 1)) }
	mac := func(m string) string { return Outer(strings.Replace(Inner(""), Mac, m, 1)) }
	return map[string]string{
		"nothing":                 "",
		"null":                    "null",
		"a string":                `"snap_1"`,
		"a list":                  "[]",
		"half":                    Outer(Inner(""))[:80],
		"more after it":           Outer(Inner("")) + " {}",
		"another provider":        strings.Replace(Outer(Inner("")), "dormouse", "r2", 1),
		"no provider":             `{"ref":` + Inner("") + `}`,
		"no ref":                  `{"providerId":"dormouse"}`,
		"ref is a string":         Outer(`"x"`),
		"ref is null":             Outer("null"),
		"an outer field":          `{"providerId":"dormouse","ref":` + Inner("") + `,"more":1}`,
		"upper case":              `{"ProviderId":"dormouse","ref":` + Inner("") + `}`,
		"an outer field twice":    `{"providerId":"r2","providerId":"dormouse","ref":` + Inner("") + `}`,
		"an inner field twice":    Outer(Inner(`,"session":"sesn_2"`)),
		"twice, the other hidden": Outer(Inner(`,"\u0073ession":"sesn_2"`)),
		"a number":                Outer(strings.Replace(Inner(""), `"sesn_1"`, "1", 1)),
		"session is null":         Outer(strings.Replace(Inner(""), `"sesn_1"`, "null", 1)),
		"up":                      snapshot("snap_../x"),
		"escaped up":              snapshot("snap_%2f"),
		"looks alike":             snapshot("snаp_1"),
		"empty id":                snapshot(""),
		"a short mac":             mac(Mac[:62]),
		"a long mac":              mac(Mac + "00"),
		"no hex":                  mac("z" + Mac[1:]),
	}
}
