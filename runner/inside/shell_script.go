package inside

import (
	"fmt"
	"strconv"
	"strings"
)

// A shell's script is a file of one line, again and again, that reads a command and
// runs it. It has one variable, __dm, an array because those are never exported:
//
//	[0] reads a command and runs it
//	[1] how the last command ended
//	[2] how long a command is, then the command
//	[3] set while a command is being aborted
//	[4] ends that
//
// Builtins are called as such, for a command may put functions in their place,
// and quoted, for it may put aliases there too. Only exec cannot be: functions of
// that name, and of command, do not always outlive the command that makes them.
// Whatever belongs to the script names __dm, which is how an abort tells it from
// the command.

const (
	// nextCommand is the line. Without __dm the shell ends.
	nextCommand = `\builtin eval "${__dm:?}"` + "\n"
	// scriptLines is how many of them are added to a script at once.
	scriptLines = 256
	// firstLine reads what all other lines need, where the shell starts.
	firstLine = `{ read -r -N 8 REPLY&&read -r -N "$REPLY";} <` + commandsFIFO + `;eval "$REPLY"` + "\n"

	// commandsFIFO and scriptFile are the shell's own.
	commandsFIFO = "commands"
	scriptFile   = "bash"

	// lengthDigits is how many digits say how long a command is.
	lengthDigits = 8

	// abort has the shell skip every command but those of the script, and leave
	// every loop.
	abort = `__dm[3]=;\builtin shopt -s extdebug;\builtin trap '[[ $BASH_COMMAND == *__dm* ]]||! \builtin break 999 2>/dev/null' DEBUG`
	// aborted undoes it.
	aborted = `\builtin trap - DEBUG "${__dm[@]:5}";\builtin shopt -u extdebug;\builtin unset "__dm[3]"`
)

// prologue is what the first line reads.
func (sh *shell) prologue(workspace string) string {
	part := func(n string) string { return `LC_ALL=C \builtin read -r -N ` + n + ` '__dm[2]'` }
	// The newline after the last command is read with the next. Without the whole of a
	// command there is nothing to go on with.
	next := "{ " + part(strconv.Itoa(1+lengthDigits)) + "&&" + part(`"${__dm[2]:1}"`) + ";} <" + quote(sh.file(commandsFIFO)) +
		`||\builtin exit 125;\builtin eval "${__dm[2]}"`
	return measured(strings.Join([]string{
		"cd " + quote(workspace) + "||exit",
		"unset OLDPWD REPLY",
		"trap " + quote(abort) + " " + strconv.Itoa(int(abortSignal)),
		"__dm=([0]=" + quote(next) + " [4]=" + quote(aborted) + ")",
	}, "\n"))
}

// measured is what a shell is sent to run text. The newline at its end is read when
// the text is done with: a shell which has read it and reported nothing does not
// obey.
func measured(text string) string { return fmt.Sprintf("%0*d%s\n", lengthDigits, len(text), text) }

// words is what the shell is sent to run the command of o.
func (sh *shell) words(o *op, c *shellCommand) string {
	return measured(strings.Join([]string{
		`\builtin export ` + opVariable + "=" + quote(string(o.call.Op)),
		`\builtin eval ` + quote(o.call.Exec.Command),
		"__dm[1]=$?",
		sh.says(c),
		`\builtin eval "${__dm[3]+${__dm[4]}}"`,
	}, "\n"))
}

// moves is what the shell is sent to print elsewhere from now on, and to say there
// how its last command ended.
func (sh *shell) moves(c *shellCommand, to string) string {
	return measured(strings.Join([]string{
		`\builtin unset -f command exec`,
		`\command exec </dev/null >` + quote(to) + ` 2>&1`,
		sh.says(c),
	}, "\n"))
}

// says has the shell say how its last command ended, after what that printed.
func (sh *shell) says(c *shellCommand) string {
	return `\builtin printf '\0%s%d %d\n' "${__dm[3]-}` + sh.mark + `" ` + strconv.FormatUint(c.seq, 10) + ` "${__dm[1]}"`
}
