//go:build linux

package runner

import (
	"strconv"
	"strings"
)

// The script has one variable, __dm, an array because those are never exported:
//
//	[0] reads a command and runs it
//	[1] how long that is
//	[2] the command
//	[3] set while a command is being aborted
//	[4] ends that
//
// Builtins are called as such, for a command may put functions in their place,
// and quoted, for it may put aliases there too. Whatever belongs to the script
// names __dm, which is how an abort tells it from the command.

const (
	// abort has the shell skip every command but those of the script, and leave
	// every loop.
	abort = `__dm[3]=;\builtin shopt -s extdebug;\builtin trap '[[ $BASH_COMMAND == *__dm* ]]||! \builtin break 999 2>/dev/null' DEBUG`
	// aborted undoes it.
	aborted = `\builtin trap - DEBUG "${__dm[@]:5}";\builtin shopt -u extdebug;\builtin unset "__dm[3]"`
)

// prologue is the beginning of a shell's script.
func (sh *shell) prologue(workspace string) string {
	// Without its rest a command's line must not be passed over: the shell would
	// take the rest for more of its script.
	next := `LC_ALL=C \builtin read -r -N "${__dm[1]}" '__dm[2]' <` + quote(sh.file("bash")) +
		`||\builtin exit 125;\builtin eval "${__dm[2]}"`
	return strings.Join([]string{
		"cd " + quote(workspace) + "||exit",
		"unset OLDPWD",
		"trap " + quote(abort) + " " + strconv.Itoa(int(abortSignal)),
		"__dm=([0]=" + quote(next) + " [4]=" + quote(aborted) + ")",
		"",
	}, "\n")
}

// words is what the shell is sent to run the command of o: a line, and what the
// line has it read.
//
// What the command prints goes to its FIFO. The shell itself prints there too,
// for a trap at its exit. The exit code is reported whatever the command did to
// the shell, and after that the shell no longer holds the FIFO open. The last
// newline is read when all this is over: a shell which has read it and reported
// nothing does not obey.
func (sh *shell) words(o *op, c *shellCommand) (line, rest string) {
	out := quote(c.fifo)
	rest = strings.Join([]string{
		`\builtin export ` + opVariable + "=" + quote(string(o.call.Op)),
		`\command exec >` + out,
		`\builtin eval ` + quote(o.call.Exec.Command) + " </dev/null >" + out + " 2>&1",
		`\builtin printf "${__dm[3]-}` + strconv.FormatUint(c.seq, 10) + ` %d\n" "$?" >` + quote(sh.file("codes")),
		`\builtin eval "${__dm[3]+${__dm[4]}}"`,
		`\command exec >/dev/null 2>&1`,
		"",
	}, "\n")
	return "__dm[1]=" + strconv.Itoa(len(rest)) + `;\builtin eval "${__dm:?}"` + "\n", rest + "\n"
}
