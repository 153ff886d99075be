package inside

import (
	"fmt"
	"strconv"
	"strings"
)

// A shell's script is a file that repeats one line, which reads a command and runs it.
// It has one variable, __dm, an array because arrays are never exported:
//
//	[0] reads a command and runs it
//	[1] how the last command ended
//	[2] how long a command is, then the command
//	[3] set while a command is being aborted
//	[4] ends that
//
// Builtins are called with builtin, because a command may define functions of their
// names, and quoted, because it may define aliases. Only exec cannot be called so:
// functions of that name, and of command, are unset first. Everything that belongs to
// the script names __dm, by which an abort tells it from the command.

const (
	// nextCommand is the line. Without __dm the shell ends.
	nextCommand = `\builtin eval "${__dm:?}"` + "\n"
	// scriptLines is how many of these lines are appended to a script at once.
	scriptLines = 256
	// firstLine reads the prologue.
	firstLine = `{ read -r -N 8 REPLY&&read -r -N "$REPLY";} <` + commandsFIFO + `;eval "$REPLY"` + "\n"

	// commandsFIFO and scriptFile are the shell's own.
	commandsFIFO = "commands"
	scriptFile   = "bash"

	// lengthDigits is the number of digits of a length prefix.
	lengthDigits = 8

	// abort makes the shell skip every command but those of the script, and leave every
	// loop.
	abort = `__dm[3]=;\builtin shopt -s extdebug;\builtin trap '[[ $BASH_COMMAND == *__dm* ]]||! \builtin break 999 2>/dev/null' DEBUG`
	// aborted undoes it.
	aborted = `\builtin trap - DEBUG "${__dm[@]:5}";\builtin shopt -u extdebug;\builtin unset "__dm[3]"`
)

// prologue is what the first line reads.
func (sh *shell) prologue(workspace string) string {
	part := func(n string) string { return `LC_ALL=C \builtin read -r -N ` + n + ` '__dm[2]'` }
	// The newline after the last command is read with the next length. The shell exits
	// if it cannot read a whole command.
	next := "{ " + part(strconv.Itoa(1+lengthDigits)) + "&&" + part(`"${__dm[2]:1}"`) + ";} <" + quote(sh.file(commandsFIFO)) +
		`||\builtin exit 125;\builtin eval "${__dm[2]}"`
	return lengthPrefixed(strings.Join([]string{
		"cd " + quote(workspace) + "||exit",
		"unset OLDPWD REPLY",
		"trap " + quote(abort) + " " + strconv.Itoa(int(abortSignal)),
		"__dm=([0]=" + quote(next) + " [4]=" + quote(aborted) + ")",
	}, "\n"))
}

// lengthPrefixed encodes text for a shell to run. The newline at its end is read after
// the text was run: a shell that has read it and written no status is wedged.
func lengthPrefixed(text string) string {
	return fmt.Sprintf("%0*d%s\n", lengthDigits, len(text), text)
}

// commandScript is the text that runs the command of o.
func (sh *shell) commandScript(o *op, c *shellCommand) string {
	return lengthPrefixed(strings.Join([]string{
		`\builtin export ` + opVariable + "=" + quote(string(o.call.Op)),
		`\builtin eval ` + quote(o.call.Exec.Command),
		"__dm[1]=$?",
		sh.reportScript(c),
		`\builtin eval "${__dm[3]+${__dm[4]}}"`,
	}, "\n"))
}

// redirectScript is the text that redirects the shell's output to another FIFO and
// writes the status of the last command there.
func (sh *shell) redirectScript(c *shellCommand, to string) string {
	return lengthPrefixed(strings.Join([]string{
		`\builtin unset -f command exec`,
		`\command exec </dev/null >` + quote(to) + ` 2>&1`,
		sh.reportScript(c),
	}, "\n"))
}

// reportScript is the text that writes the status of the last command.
func (sh *shell) reportScript(c *shellCommand) string {
	return `\builtin printf '\0%s%d %d\n' "${__dm[3]-}` + sh.mark + `" ` + strconv.FormatUint(c.seq, 10) + ` "${__dm[1]}"`
}
