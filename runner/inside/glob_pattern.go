package inside

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/runner"
)

// globPattern is a pattern of file names, ready to be used.
type globPattern struct {
	base  string         // the directory that all it fits is below, as far as it is spelled out
	fits  *regexp.Regexp // names below that
	depth int            // how many directories below that it reaches, negative for all
}

func parseGlob(pattern string) (globPattern, error) {
	if err := runner.ValidatePattern(pattern); err != nil {
		return globPattern{}, err
	}
	var p globPattern
	rest := pattern
	special := strings.IndexAny(pattern, `*?[{\`)
	if special < 0 {
		special = len(pattern)
	}
	if i := strings.LastIndexByte(pattern[:special], '/'); i >= 0 {
		p.base, rest = pattern[:max(i, 1)], pattern[i+1:]
	}
	c := &globCompiler{rest: rest}
	if err := c.compile(); err != nil {
		return globPattern{}, fmt.Errorf("pattern %.200q: %w: %w", pattern, err, dormouse.ErrInvalid)
	}
	re, err := regexp.Compile(`\A(?s:` + c.out.String() + `)\z`)
	if err != nil {
		return globPattern{}, fmt.Errorf("pattern %.200q: %w: %w", pattern, err, dormouse.ErrInvalid)
	}
	p.fits, p.depth = re, c.slashes
	if c.deep {
		p.depth = -1
	}
	return p, nil
}

// globCompiler makes a regular expression of a pattern.
type globCompiler struct {
	rest    string // what is not read yet
	out     strings.Builder
	braces  int  // how many are open
	within  bool // the last character was within a name
	slashes int
	deep    bool // it may reach any depth
}

func (c *globCompiler) compile() error {
	for c.rest != "" {
		r, n := utf8.DecodeRuneInString(c.rest)
		at := c.rest
		c.rest = c.rest[n:]
		within := true
		switch r {
		case '*':
			within = c.star(at)
		case '?':
			c.out.WriteString(`[^/]`)
		case '[':
			if err := c.class(); err != nil {
				return err
			}
		case '{':
			c.braces++
			c.out.WriteString(`(?:`)
			within = c.within
		case '}':
			if c.braces--; c.braces < 0 {
				return errors.New("a } closes nothing")
			}
			c.out.WriteByte(')')
		case ',':
			c.out.WriteString(map[bool]string{true: "|", false: ","}[c.braces > 0])
			within = c.braces == 0
		case '/':
			c.out.WriteByte('/')
			c.slashes++
			c.deep = c.deep || c.braces > 0 // not worth counting
			within = false
		case '\\':
			r, n := utf8.DecodeRuneInString(c.rest)
			if n == 0 {
				return errors.New("it ends with a \\")
			}
			c.rest = c.rest[n:]
			c.out.WriteString(regexp.QuoteMeta(string(r)))
			c.deep = c.deep || r == '/'
		default:
			c.out.WriteString(regexp.QuoteMeta(string(r)))
		}
		c.within = within
	}
	if c.braces > 0 {
		return errors.New("a { is not closed")
	}
	return nil
}

// star reads what begins with a star, and says whether it is within a name.
func (c *globCompiler) star(at string) (within bool) {
	rest := strings.TrimLeft(at, "*")
	switch {
	case len(at)-len(rest) < 2 || c.within:
		c.out.WriteString(`[^/]*`)
	case strings.HasPrefix(rest, "/"):
		c.out.WriteString(`(?:[^/]+/)*`)
		c.deep, c.rest = true, rest[1:]
		return false
	case rest == "" || c.braces > 0 && strings.IndexByte(",}", rest[0]) >= 0:
		c.out.WriteString(`.*`)
		c.deep = true
	default:
		c.out.WriteString(`[^/]*`)
	}
	c.rest = rest
	return true
}

// class reads a class of characters up to its end.
func (c *globCompiler) class() error {
	not := strings.HasPrefix(c.rest, "!") || strings.HasPrefix(c.rest, "^")
	if not {
		c.rest = c.rest[1:]
	}
	end := strings.IndexByte(c.rest[min(1, len(c.rest)):], ']') + 1 // a ] that comes first is one of them
	if end < 1 {
		return errors.New("a [ is not closed")
	}
	members := []rune(c.rest[:end])
	c.rest = c.rest[end+1:]
	c.out.WriteByte('[')
	if not {
		c.out.WriteString(`^/`)
	}
	for i, r := range members {
		if r == '-' && i > 0 && i < len(members)-1 {
			c.out.WriteByte('-')
			continue
		}
		fmt.Fprintf(&c.out, `\x{%x}`, r)
	}
	c.out.WriteByte(']')
	return nil
}

func isMissing(err error) bool { return errors.Is(err, fs.ErrNotExist) }
