package runner

import (
	"bytes"
	"strings"
	"unicode"
	"unicode/utf8"
)

// How much of a runner's texts is passed on. Longer texts are truncated.
const (
	maxDetail = 200
	maxReason = 4 << 10 // why a call failed; a path fits
	maxListed = 2 << 10 // the command of a terminal
)

// sanitize makes a frame of a runner safe to pass on to events, logs and people: the
// code in the sandbox may have forged it. It bounds texts, replaces unprintable
// characters, and clamps numbers to their valid range.
func sanitize(f *Frame) {
	f.Detail = SingleLine(f.Detail)
	if len(f.Output) > maxOutput { // copied, so that the rest is not kept in memory
		f.Output = bytes.Clone(f.Output[:maxOutput])
	}
	if f.Report != nil && f.Report.Result != nil {
		sanitizeResult(f.Report.Result)
	}
	if u := f.Usage; u != nil {
		u.Processes, u.Ops, u.Tasks, u.Terminals = max(u.Processes, 0), max(u.Ops, 0), max(u.Tasks, 0), max(u.Terminals, 0)
		u.Shells = max(u.Shells, 0)
		u.RSS, u.CPU = max(u.RSS, 0), max(u.CPU, 0)
	}
	for i := range f.Victims {
		v := &f.Victims[i]
		v.Command, v.PID, v.RSS = SingleLine(v.Command), max(v.PID, 0), max(v.RSS, 0)
	}
	for i := range f.Ports {
		p := &f.Ports[i]
		p.Address, p.Command, p.PID = SingleLine(p.Address), SingleLine(p.Command), max(p.PID, 0)
	}
	for i := range f.Terminals {
		t := &f.Terminals[i]
		t.ID, t.Command, t.PID, t.Attached = SingleLine(t.ID), TruncateArgs(t.Command), max(t.PID, 0), max(t.Attached, 0)
	}
}

func sanitizeResult(r *Result) {
	r.Error, r.Note = Printable(r.Error, maxReason), Printable(r.Note, maxReason)
	r.File, r.Log = Printable(r.File, MaxPath), Printable(r.Log, MaxPath)
	r.Exit = min(max(r.Exit, -1), 255) // 128+n after signal n
	r.Omitted, r.Size, r.Line, r.Count, r.PID = max(r.Omitted, 0), max(r.Size, 0), max(r.Line, 0), max(r.Count, 0), max(r.PID, 0)
	switch r.Media {
	case "", MediaDirectory, MediaPNG, MediaJPEG, MediaGIF, MediaWebP:
	default:
		r.Media = ""
	}
}

// TruncateArgs returns the arguments of a command as they are listed.
func TruncateArgs(words []string) []string {
	left := maxListed
	var short []string
	for _, w := range words {
		if left <= 0 {
			break
		}
		w = Printable(w, left)
		short = append(short, w)
		left -= len(w) + 1
	}
	return short
}

// Printable truncates a text and replaces unprintable characters with spaces, except
// line feeds and tabs.
func Printable(text string, most int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) > most {
		cut := most
		for cut > 0 && !utf8.RuneStart(text[cut]) {
			cut--
		}
		text = text[:cut]
	}
	if !strings.ContainsFunc(text, unprintable) {
		return text
	}
	return strings.Map(func(c rune) rune {
		if unprintable(c) {
			return ' '
		}
		return c
	}, text)
}

// unprintable reports whether a character is invisible, or changes how others are shown.
func unprintable(c rune) bool {
	return c != '\n' && c != '\t' && (unicode.IsControl(c) || unicode.In(c, unicode.Cf, unicode.Zl, unicode.Zp))
}

// SingleLine makes one short, printable line of a text.
func SingleLine(words string) string {
	return strings.TrimSpace(strings.NewReplacer("\n", " ", "\t", " ").Replace(Printable(words, maxDetail)))
}
