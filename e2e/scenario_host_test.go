package e2e

import (
	"bytes"
	"fmt"
	"os"
	"testing"

	"github.com/dormouse-run/dormouse/e2e/rig"
)

// A password that somebody gave on the command line all the same is gone from the
// process list once the server listens.
func TestAPasswordOnTheCommandLineIsBlanked(t *testing.T) {
	t.Parallel()
	const secret = "swordfish-on-the-line"
	w := newWorld(t, func(s *rig.Server) {
		s.Flags = append(s.Flags, "--anthropic-url", "http://dormouse:"+secret+"@127.0.0.1:1", "--log-format=json")
	})
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", w.live().PID()))
	must(t, err)
	if bytes.Contains(line, []byte(secret)) || !bytes.Contains(line, []byte("--anthropic-url\x00xxx")) || !bytes.Contains(line, []byte("\x00--log-format=json\x00")) {
		t.Errorf("the process list has %q", line)
	}
	log, err := os.ReadFile(w.Log)
	must(t, err)
	if bytes.Contains(log, []byte(secret)) || !bytes.Contains(log, []byte(`"flag":"--anthropic-url"`)) {
		t.Errorf("the log has %s", log)
	}
}
