//go:build linux

package wall

import (
	"bytes"
	"compress/gzip"
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

func TestACanaryIsFoundInEveryEncoding(t *testing.T) {
	c := newCanary("here")
	f := newFinder(newCanary("elsewhere"), c)
	escaped := ""
	percent := ""
	for _, r := range c.text {
		escaped += fmt.Sprintf(`\u%04x`, r)
		percent += fmt.Sprintf("%%%02x", r)
	}
	var wide []byte
	for _, r := range []byte(c.text) {
		wide = append(wide, r, 0)
	}
	said := map[string]string{
		"plain": "x" + c.text + "y", "the first half": c.text[:16], "the second half": c.text[16:], "hex": hex.EncodeToString([]byte(c.text)),
		"upper hex": strings.ToUpper(hex.EncodeToString([]byte(c.text))), "percent": percent, "query": url.QueryEscape(c.text), "escaped": escaped, "utf-16": string(wide),
	}
	for n := range 5 {
		before := strings.Repeat("b", n)
		said[fmt.Sprint("base64 after ", n)] = base64.StdEncoding.EncodeToString([]byte(before + c.text + "after"))
		said[fmt.Sprint("base64url after ", n)] = base64.URLEncoding.EncodeToString([]byte(before + c.text + "after"))
		said[fmt.Sprint("base32 after ", n)] = base32.StdEncoding.EncodeToString([]byte(before + c.text + "after"))
	}
	reversed := []byte(c.text)
	for i, j := 0, len(reversed)-1; i < j; i, j = i+1, j-1 {
		reversed[i], reversed[j] = reversed[j], reversed[i]
	}
	said["reversed"] = string(reversed)
	for how, text := range said {
		found := f.in([]byte(text))
		if len(found) == 0 || !strings.HasPrefix(found[0], "here") {
			t.Errorf("%s: %q is not found in %q: %v", how, c.text, text, found)
		}
	}
	if len(encodings()) != 8 {
		t.Errorf("there are %d encodings", len(encodings()))
	}
	if found := f.in([]byte(newCanary("other").text)); len(found) > 0 {
		t.Errorf("another text is taken for %v", found)
	}
}

func TestACanaryIsFoundInWhatIsPacked(t *testing.T) {
	c := newCanary("packed")
	f := newFinder(c)
	var gz, zs bytes.Buffer
	g := gzip.NewWriter(&gz)
	_, _ = g.Write(c.page())
	_ = g.Close()
	z, err := zstd.NewWriter(&zs)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = z.Write(gz.Bytes())
	_ = z.Close()
	for name, b := range map[string][]byte{"gzip": gz.Bytes(), "gzip in zstd": zs.Bytes()} {
		seen := &trial{world: &world{find: f}}
		seen.see("it", b)
		if len(seen.leaks) == 0 {
			t.Errorf("%s: nothing is found", name)
		}
	}
}

func TestTextOfASandboxIsFoundInAnswers(t *testing.T) {
	for name, reported := range map[string]any{
		"colours":   map[string]any{"error": map[string]any{"message": "it ended: \x1b[31mred"}},
		"too long":  map[string]any{"events": []any{map[string]any{"payload": map[string]any{"error": strings.Repeat("a", mostWords+1)}}}},
		"a zero":    map[string]any{"reason": "a\x00b"},
		"a return":  map[string]any{"detail": "a\r\nb"},
		"in a list": []any{map[string]any{"lost": "\x1b"}},
	} {
		b, err := json.Marshal(reported)
		if err != nil {
			t.Fatal(err)
		}
		if len(taken(b)) == 0 {
			t.Errorf("%s: nothing is found in %.80s", name, b)
		}
	}
	for _, fine := range []string{`{"output":"\u001b[31m"}`, `{"error":"exit status 1"}`, "no JSON \x1b"} {
		if found := taken([]byte(fine)); len(found) > 0 {
			t.Errorf("%s is taken for %v", fine, found)
		}
	}
	for _, log := range []string{"level=ERROR msg=FORGED\n", "msg=\x1b[2J\n", strings.Repeat("a", 3*mostWords) + "\n"} {
		if len(takenByLog([]byte(log))) == 0 {
			t.Errorf("nothing is found in the log %.40q", log)
		}
	}
	if found := takenByLog([]byte("time=now level=INFO msg=\"it is \\x1b\"\n")); len(found) > 0 {
		t.Errorf("a log is taken for %v", found)
	}
}
