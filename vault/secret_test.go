package vault_test

import (
	"bytes"
	"encoding/gob"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/dormouse-run/dormouse/vault"
)

const canary = "canary-5f0c"

func TestASecretCannotBePrinted(t *testing.T) {
	s := vault.NewSecret(canary)
	holder := struct {
		Name   string
		Secret vault.Secret
		Ref    *vault.Secret
		hidden vault.Secret
	}{"n", s, &s, s}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%T %v"} {
		for _, v := range []any{s, &s, holder, &holder, []vault.Secret{s}, map[string]vault.Secret{"k": s}} {
			if out := fmt.Sprintf(verb, v, v); strings.Contains(out, canary) || strings.Contains(out, fmt.Sprintf("%x", canary)) {
				t.Errorf("%s of %T shows it: %s", verb, v, out)
			}
		}
	}
	var out bytes.Buffer
	for _, h := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
		slog.New(h).Info("with", "secret", s, "ref", &s, "holder", holder)
	}
	if strings.Contains(out.String(), canary) {
		t.Errorf("the log shows it: %s", out.String())
	}
}

func TestASecretIsNotMarshalled(t *testing.T) {
	s := vault.NewSecret(canary)
	if out, err := json.Marshal(map[string]any{"s": s}); err == nil {
		t.Errorf("JSON takes it: %s", out)
	}
	var out bytes.Buffer
	if err := gob.NewEncoder(&out).Encode(s); err == nil {
		t.Errorf("gob takes it: %q", out.String())
	}
}

func TestRevealReturnsTheValue(t *testing.T) {
	if got := vault.NewSecret(canary).Reveal(); got != canary {
		t.Errorf("got %q", got)
	}
	if !(vault.Secret{}).IsZero() || vault.NewSecret("x").IsZero() {
		t.Error("IsZero is wrong")
	}
}
