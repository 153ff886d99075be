//go:build linux

package inside_test

import (
	"strings"
	"testing"
)

// TestNothingWedgesAShell gives a shell a command that is bad for it, and then
// asks it for what it knew before.
func TestNothingWedgesAShell(t *testing.T) {
	_, l := open(t)
	type result struct {
		Exit     int
		Output   string
		NewShell bool
	}
	const whatever = "*"
	for name, test := range map[string]struct {
		command string
		want    result // of the command
		fresh   bool   // the next command finds another shell
	}{
		"half a command":         {"if", result{2, whatever, false}, false},
		"not a command":          {"echo )", result{2, whatever, false}, false},
		"half a quote":           {"echo 'x", result{2, whatever, false}, false},
		"half a here-document":   {"cat <<end\nx", result{0, whatever, false}, false},
		"a comment":              {"echo x # '", result{0, "x\n", false}, false},
		"nothing":                {"", result{0, "", false}, false},
		"a line too many":        {"\n\necho x\n\n", result{0, "x\n", false}, false},
		"exit":                   {"echo x; exit 3; echo y", result{3, "x\n", false}, true},
		"exit in a function":     {"g() { exit 4; }; g", result{4, "", false}, true},
		"exit with a trap":       {"trap 'echo bye' EXIT; exit 5", result{5, "bye\n", false}, true},
		"exec":                   {"exec sh -c 'echo x; exit 6'", result{6, "x\n", false}, true},
		"exec of nothing":        {"exec /nowhere", result{127, whatever, false}, true},
		"its own death":          {"kill -9 $$", result{137, "", false}, true},
		"errexit":                {"set -e; false; echo y", result{1, "", false}, true},
		"errexit without error":  {"set -e; echo y", result{0, "y\n", false}, false},
		"nounset":                {"set -u; echo $nowhere; echo y", result{1, whatever, false}, true},
		"division by zero":       {"echo $((1/0)); echo y", result{1, whatever, false}, false},
		"break":                  {"break; continue; return 3; echo y", result{0, whatever, false}, false},
		"other builtins":         {"read() { :; }; printf() { :; }; eval() { :; }; export() { :; }; exec() { :; }; command() { :; }; unset() { :; }; trap() { :; }; exit() { :; }", result{}, false},
		"aliases":                {"shopt -s expand_aliases; alias builtin=false read=false if=false", result{}, false},
		"no IFS":                 {"unset IFS; (exit 12)", result{12, "", false}, false},
		"another IFS":            {"IFS=0123456789; (exit 12)", result{12, "", false}, false},
		"strict options":         {"set -C -f -a -k; shopt -s failglob nullglob; (exit 9)", result{9, "", false}, false},
		"tracing":                {"set -x; (exit 9) 2>/dev/null", result{9, whatever, false}, false},
		"posix":                  {"set -o posix; if", result{2, whatever, false}, false},
		"closed descriptors":     {`for i in {0..260}; do eval "exec $i>&-"; done; (exit 9)`, result{9, whatever, false}, false},
		"closed output":          {"exec >&- 2>&-; (exit 9)", result{9, "", false}, false},
		"other output":           {"exec >log 2>&1 <log; echo y", result{}, false},
		"other input":            {"exec 255</dev/null 10</dev/null; (exit 9)", result{9, "", false}, false},
		"a trap of everything":   {"trap 'echo trapped >>log' DEBUG ERR RETURN TERM HUP; (exit 9)", result{9, whatever, false}, false},
		"a trap that forbids":    {"shopt -s extdebug; trap false DEBUG", result{0, "", false}, true},
		"no execution":           {"set -n", result{0, "", false}, true},
		"another way to call":    {"builtin() { :; }", result{0, "", false}, true},
		"no way to call":         {"enable -n builtin", result{127, whatever, false}, true},
		"no memory of the rest":  {"unset __dm", result{0, whatever, false}, true},
		"fixed names":            {"readonly DORMOUSE_OP", result{}, false},
		"few descriptors":        {"ulimit -n 20; (exit 9)", result{9, "", false}, false},
		"bytes that are no text": {"echo \xff\xfe\xe3'\xe3'", result{0, whatever, false}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			shell := strings.ReplaceAll(name, " ", "_")
			if res := do(t, l, inShell(shell, "memory=kept")); res.Exit != 0 || res.NewShell {
				t.Fatalf("first command: %+v", res)
			}
			res := do(t, l, inShell(shell, test.command))
			got := result{res.Exit, string(res.Output), res.NewShell}
			if test.want.Output == whatever {
				got.Output = whatever
			}
			if got != test.want {
				t.Errorf("result: %+v, want %+v", res, test.want)
			}
			want := result{0, "kept\n", false}
			if test.fresh {
				want = result{0, "\n", true}
			}
			res = do(t, l, inShell(shell, "{ set +xeu; } 2>/dev/null; echo $memory"))
			if got := (result{res.Exit, strings.TrimPrefix(string(res.Output), "+ "), res.NewShell}); got.Exit != want.Exit || !strings.HasSuffix(got.Output, want.Output) || got.NewShell != want.NewShell {
				t.Errorf("next command: %+v, want %+v", res, want)
			}
			if res = do(t, l, inShell(shell, "echo end")); res.NewShell || !strings.HasSuffix(string(res.Output), "end\n") {
				t.Errorf("last command: %+v", res)
			}
		})
	}
}
