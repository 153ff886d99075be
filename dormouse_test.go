package dormouse_test

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/dormouse-run/dormouse"
)

func TestDerivedIDsFollowFromTheirPartsAndNothingElse(t *testing.T) {
	a := dormouse.DeriveID("op_", "ab", "c")
	if a != dormouse.DeriveID("op_", "ab", "c") {
		t.Error("the same parts gave another id")
	}
	if a == dormouse.DeriveID("op_", "a", "bc") || a == dormouse.DeriveID("op_", "abc") {
		t.Error("other parts gave the same id")
	}
	if err := dormouse.OpID(a).Validate(); err != nil {
		t.Error(err)
	}
}

func TestNamesThatCannotBeAreRefused(t *testing.T) {
	for _, id := range []dormouse.SessionID{
		"", "sesn_", "op_x", "sesn_a/b", "sesn_..", "sesn_\x00", "sesn_ä", dormouse.SessionID("sesn_" + strings.Repeat("x", 200)),
	} {
		if err := id.Validate(); !errors.Is(err, dormouse.ErrInvalid) {
			t.Errorf("%q: %v", id, err)
		}
	}
}

func TestAnOpsNameIsWhatItIs(t *testing.T) {
	op := dormouse.Op{Kind: dormouse.OpExec, Args: "sha256:a", Origin: dormouse.Origin{Turn: "turn_1", Call: 1}}
	for name, other := range map[string]dormouse.Op{
		"another kind":  {Kind: dormouse.OpTask, Args: op.Args, Origin: op.Origin},
		"other args":    {Kind: op.Kind, Args: "sha256:b", Origin: op.Origin},
		"another block": {Kind: op.Kind, Args: op.Args, Origin: dormouse.Origin{Turn: "turn_1", Call: 1, Block: 1}},
		"another try":   {Kind: op.Kind, Args: op.Args, Origin: op.Origin, Try: 1},
	} {
		if op.Named("sesn_1").ID == other.Named("sesn_1").ID {
			t.Errorf("%s has the same id", name)
		}
	}
	if op.Named("sesn_1").ID == op.Named("sesn_2").ID {
		t.Error("another session has the same id")
	}
}

func TestVerdicts(t *testing.T) {
	for _, test := range []struct {
		kind        dormouse.OpKind
		keyed, same bool
		want        dormouse.Verdict
	}{
		{dormouse.OpModel, false, true, dormouse.VerdictReplace},
		{dormouse.OpModel, true, true, dormouse.VerdictResend},
		{dormouse.OpExec, false, true, dormouse.VerdictAsk},
		{dormouse.OpExec, false, false, dormouse.VerdictUnknown},
		{dormouse.OpTask, false, true, dormouse.VerdictAsk},
		{dormouse.OpWrite, false, false, dormouse.VerdictUnknown},
		{dormouse.OpRead, false, false, dormouse.VerdictRepeat},
		{dormouse.OpCustom, false, false, dormouse.VerdictKeep},
		{dormouse.OpApproval, false, true, dormouse.VerdictKeep},
		{"a kind of tomorrow", false, true, dormouse.VerdictUnknown},
	} {
		if got := test.kind.Verdict(test.keyed, test.same); got != test.want {
			t.Errorf("%s keyed=%v same=%v: %s, want %s", test.kind, test.keyed, test.same, got, test.want)
		}
	}
}

func TestContentThatNoModelCouldBeSentIsRefused(t *testing.T) {
	for name, content := range map[string][]dormouse.Block{
		"nothing":     {},
		"empty text":  {dormouse.Text(" \n")},
		"NUL":         {dormouse.Text("a\x00b")},
		"bad UTF-8":   {dormouse.Text("a\xffb")},
		"odd block":   {{Type: "redacted"}},
		"no source":   {{Type: "image"}},
		"too large":   {dormouse.Text(strings.Repeat("x", dormouse.MaxContent+1))},
		"many blocks": make([]dormouse.Block, dormouse.MaxBlocks+1),
	} {
		err := dormouse.ValidateContent(content)
		if !errors.Is(err, dormouse.ErrInvalid) && !errors.Is(err, dormouse.ErrTooLarge) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := dormouse.ValidateContent([]dormouse.Block{dormouse.Text("hi"), {Type: "image", Source: json.RawMessage(`{}`)}}); err != nil {
		t.Error(err)
	}
}

func TestASessionThatCouldNotWorkIsRefused(t *testing.T) {
	good := dormouse.Created{Session: "sesn_1", Recovery: dormouse.RecoverAuto, Agent: dormouse.AgentConfig{Model: "m"}}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*dormouse.Created){
		"no id":          func(c *dormouse.Created) { c.Session = "x" },
		"long title":     func(c *dormouse.Created) { c.Title = strings.Repeat("x", 501) },
		"odd recovery":   func(c *dormouse.Created) { c.Recovery = "maybe" },
		"no model":       func(c *dormouse.Created) { c.Agent.Model = "" },
		"bad tool name":  func(c *dormouse.Created) { c.Agent.Tools = []dormouse.ToolConfig{{Name: "a b"}} },
		"tool twice":     func(c *dormouse.Created) { c.Agent.Tools = []dormouse.ToolConfig{{Name: "a"}, {Name: "a"}} },
		"odd permission": func(c *dormouse.Created) { c.Agent.Tools = []dormouse.ToolConfig{{Name: "a", Permission: "x"}} },
		"schema not JSON": func(c *dormouse.Created) {
			c.Agent.CustomTools = []dormouse.CustomTool{{Name: "a", InputSchema: json.RawMessage("{")}}
		},
		"image of two words": func(c *dormouse.Created) { c.Environment.Image = "a b" },
		"image too long":     func(c *dormouse.Created) { c.Environment.Image = strings.Repeat("x", dormouse.MaxImage+1) },
		"odd network":        func(c *dormouse.Created) { c.Environment.Network = "some" },
		"too little memory":  func(c *dormouse.Created) { c.Environment.Limits.Memory = 1 },
		"negative memory":    func(c *dormouse.Created) { c.Environment.Limits.Memory = -2 },
		"endless processors": func(c *dormouse.Created) { c.Environment.Limits.CPUs = math.Inf(1) },
		"no number at all":   func(c *dormouse.Created) { c.Environment.Limits.CPUs = math.NaN() },
		"more than there is": func(c *dormouse.Created) { c.Environment.Limits.Pids = math.MaxInt64 },
		"negative sleep":     func(c *dormouse.Created) { c.SleepAfter = -1 },
		"title not UTF-8":    func(c *dormouse.Created) { c.Title = "\xff" },
		"version of nobody":  func(c *dormouse.Created) { c.Agent.Version = 1 },
		"negative version":   func(c *dormouse.Created) { c.Agent.ID, c.Agent.Version = "agent_a", -1 },
		"shown not as JSON":  func(c *dormouse.Created) { c.Agent.Shown = json.RawMessage("{") },
		"long agent id":      func(c *dormouse.Created) { c.Agent.ID = strings.Repeat("x", dormouse.MaxName+1) },
		"long environment":   func(c *dormouse.Created) { c.EnvironmentID = strings.Repeat("x", dormouse.MaxName+1) },
		"system too large":   func(c *dormouse.Created) { c.Agent.System = strings.Repeat("x", dormouse.MaxSystem+1) },
	} {
		c := good
		spoil(&c)
		if err := c.Validate(); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

func TestEveryPublicTypeIsShownToEveryone(t *testing.T) {
	for _, typ := range []dormouse.EventType{dormouse.UserMessage, dormouse.AgentToolResult, dormouse.SessionStatusIdle} {
		if typ.Audience() != dormouse.ForEveryone {
			t.Errorf("%s is not public", typ)
		}
	}
	if dormouse.EventType("fact.of_tomorrow").Audience() != dormouse.ForCore {
		t.Error("an unknown fact is shown")
	}
}

func TestALimitThatIsLeftOpenIsFilled(t *testing.T) {
	l := dormouse.Limits{CPUs: 1, Disk: dormouse.Unlimited}.Or(dormouse.Limits{CPUs: 2, Memory: 3, Pids: 4, Disk: 5, Inodes: 6, Files: 7})
	if want := (dormouse.Limits{CPUs: 1, Memory: 3, Pids: 4, Disk: dormouse.Unlimited, Inodes: 6, Files: 7}); l != want {
		t.Errorf("filled %+v", l)
	}
}

func TestALimitMustBeWithinTheOther(t *testing.T) {
	of := dormouse.Limits{CPUs: 2, Memory: 1 << 30}
	for name, c := range map[string]struct {
		l    dormouse.Limits
		says string
	}{
		"nothing":                {dormouse.Limits{}, ""},
		"the most":               {of, ""},
		"what has no limit":      {dormouse.Limits{Pids: 1 << 20}, ""},
		"over it":                {dormouse.Limits{CPUs: 2.5}, "limits.cpus is 2.5; this server gives at most 2"},
		"over it by a little":    {dormouse.Limits{Memory: 1<<30 + 1}, "limits.memory is 1073741825"},
		"none":                   {dormouse.Limits{CPUs: dormouse.Unlimited}, "limits.cpus cannot be -1"},
		"none where none is set": {dormouse.Limits{Files: dormouse.Unlimited}, "limits.files cannot be -1"},
	} {
		err := c.l.Within(of)
		if (err == nil) != (c.says == "") || err != nil && (!strings.Contains(err.Error(), c.says) || !errors.Is(err, dormouse.ErrInvalid)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
