package runner

import (
	"bytes"
	"strings"
	"unicode"
	"unicode/utf8"
)

// How much of what a runner says of itself is passed on. Longer texts are cut.
const (
	maxDetail = 200
	maxReason = 4 << 10 // why a call failed; a path fits
	maxListed = 2 << 10 // the command of a terminal
)

// tame makes what a runner sent safe to pass on, to events, logs and people:
// whoever is inside a sandbox may have written it. Texts are bounded and of
// characters that show, numbers are of what there can be.
func tame(f *Frame) {
	f.Detail = Plain(f.Detail)
	if len(f.Output) > maxOutput { // copied, for the rest would be held with it
		f.Output = bytes.Clone(f.Output[:maxOutput])
	}
	if f.Report != nil && f.Report.Result != nil {
		tameResult(f.Report.Result)
	}
	if u := f.Usage; u != nil {
		u.Processes, u.Ops, u.Tasks, u.Terminals = max(u.Processes, 0), max(u.Ops, 0), max(u.Tasks, 0), max(u.Terminals, 0)
		u.Shells = max(u.Shells, 0)
		u.RSS, u.CPU = max(u.RSS, 0), max(u.CPU, 0)
	}
	for i := range f.Victims {
		v := &f.Victims[i]
		v.Command, v.PID, v.RSS = Plain(v.Command), max(v.PID, 0), max(v.RSS, 0)
	}
	for i := range f.Ports {
		p := &f.Ports[i]
		p.Address, p.Command, p.PID = Plain(p.Address), Plain(p.Command), max(p.PID, 0)
	}
	for i := range f.Terminals {
		t := &f.Terminals[i]
		t.ID, t.Command, t.PID, t.Attached = Plain(t.ID), ShortWords(t.Command), max(t.PID, 0), max(t.Attached, 0)
	}
}

func tameResult(r *Result) {
	r.Error, r.Note = Readable(r.Error, maxReason), Readable(r.Note, maxReason)
	r.File, r.Log = Readable(r.File, MaxPath), Readable(r.Log, MaxPath)
	r.Exit = min(max(r.Exit, -1), 255) // 128+n after signal n
	r.Omitted, r.Size, r.Line, r.Count, r.PID = max(r.Omitted, 0), max(r.Size, 0), max(r.Line, 0), max(r.Count, 0), max(r.PID, 0)
	switch r.Media {
	case "", MediaDirectory, MediaPNG, MediaJPEG, MediaGIF, MediaWebP:
	default:
		r.Media = ""
	}
}

// ShortWords are the words of a command as it is listed.
func ShortWords(words []string) []string {
	left := maxListed
	var short []string
	for _, w := range words {
		if left <= 0 {
			break
		}
		w = Readable(w, left)
		short = append(short, w)
		left -= len(w) + 1
	}
	return short
}

// Readable cuts a text and replaces what does not show in it, but for line feeds
// and tabs.
func Readable(text string, most int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) > most {
		cut := most
		for cut > 0 && !utf8.RuneStart(text[cut]) {
			cut--
		}
		text = text[:cut]
	}
	if !strings.ContainsFunc(text, hidden) {
		return text
	}
	return strings.Map(func(c rune) rune {
		if hidden(c) {
			return ' '
		}
		return c
	}, text)
}

// hidden reports whether a character does not show, or changes how others do.
func hidden(c rune) bool {
	return c != '\n' && c != '\t' && (unicode.IsControl(c) || unicode.In(c, unicode.Cf, unicode.Zl, unicode.Zp))
}

// Plain makes one short line of what a process calls itself.
func Plain(words string) string {
	return strings.TrimSpace(strings.NewReplacer("\n", " ", "\t", " ").Replace(Readable(words, maxDetail)))
}
