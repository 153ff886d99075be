package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/pgserver"
)

// startDatabase starts a PostgreSQL for one test and returns where it is.
func startDatabase(t *testing.T) dsn {
	t.Helper()
	db, err := pgserver.Start(t.Context(), "fsync=off")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err := db.CreateDB(t.Context(), "dormouse", ""); err != nil {
		t.Fatal(err)
	}
	return dsn{value: db.URL("dormouse")}
}

func TestServersShareADatabase(t *testing.T) {
	at, data := startDatabase(t), t.TempDir()
	shared := func(c *config) { c.Store, c.Lease = at, 3*time.Second }
	a, b := startServer(t, data, shared), startServer(t, data, shared)
	id := strings.TrimSpace(must(t, data, "session", "create", "--server", a.url, "--cold"))
	must(t, data, "session", "send", "--server", a.url, id, "hello", "--follow")
	out := must(t, data, "session", "send", "--server", b.url, id, "hello again", "--follow")
	if n := strings.Count(out, "No model is configured"); n != 1 {
		t.Errorf("the answer came %d times: %s", n, out)
	}
	for _, s := range []*serving{a, b} {
		if status, body := s.get("/readyz", false); status != 200 {
			t.Errorf("ready: %d %s", status, body)
		}
	}
	if _, body := b.get("/metrics", true); !strings.Contains(body, "dormouse_requests_forwarded_total 1") {
		t.Error("the forwarded prompt was not counted")
	}
	if out := must(t, data, "doctor", "--json", "--store", at.value, "--runner", "/bin/true"); strings.Count(out, " at 127.0.0.1:") < 2 {
		t.Errorf("doctor does not know the servers: %s", out)
	}

	// Clients find a server by the file in its directory: the file is removed with
	// the server that it names, and with no other.
	if err := a.stop(); err != nil {
		t.Error(err)
	}
	var published running
	raw, err := os.ReadFile(filepath.Join(data, serverFile))
	if err != nil || json.Unmarshal(raw, &published) != nil || "http://"+published.Address != b.url {
		t.Errorf("%s names %q, %v", serverFile, published.Address, err)
	}
	start := time.Now()
	must(t, data, "session", "send", id, "and again", "--follow")
	if took := time.Since(start); took > 3*time.Second {
		t.Errorf("what the other server had took %v to be free", took)
	}
	if err := b.stop(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(data, serverFile)); err == nil {
		t.Error("the address outlives the servers")
	}
}

func must(t *testing.T, data string, args ...string) string {
	t.Helper()
	out, errs, code := runIn(t.Context(), "", append([]string{"--data", data}, args...)...)
	if code != 0 {
		t.Fatalf("%v: exit %d: %s%s", args, code, out, errs)
	}
	return out
}

func TestAServerWithAnotherDirectoryIsNotLetIn(t *testing.T) {
	at := startDatabase(t)
	shared := func(c *config) { c.Store, c.Lease = at, 3*time.Second }
	a := startServer(t, t.TempDir(), shared)
	stranger := a.config
	stranger.Data = t.TempDir()
	err := serve(context.WithoutCancel(t.Context()), stranger, make(chan os.Signal), new(safeBuffer), slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "--data") {
		t.Errorf("got %v", err)
	}
	if err := a.stop(); err != nil {
		t.Error(err)
	}
}

func TestAPasswordIsNotPrinted(t *testing.T) {
	const secret = "swordfish"
	d := dsn{value: "postgres://dormouse:" + secret + "@db.example/dormouse"}
	var b safeBuffer
	log := slog.New(slog.NewTextHandler(&b, nil))
	log.Info("a line", "store", d, "config", config{Store: d})
	text := fmt.Sprintf("%v %+v %#v %s %q", d, config{Store: d}, config{Store: d}, d, d) + b.String()
	if strings.Contains(text, secret) || !strings.Contains(text, "db.example") {
		t.Error(text)
	}
	for _, at := range []string{d.value, "postgres://d@h/d?password=" + secret, "postgres://d:%73wordfish@h/d"} {
		err := dsn{value: at}.hide(fmt.Errorf("dial %s as %s: %w", at, secret, dormouse.ErrUnavailable))
		if strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), "%73word") || !errors.Is(err, dormouse.ErrUnavailable) {
			t.Errorf("%s is hidden as %v", at, err)
		}
	}
	data := t.TempDir()
	for _, at := range []string{
		d.value[:len("postgres://dormouse:"+secret)] + "@127.0.0.1:1/dormouse", "mysql://dormouse:" + secret + "@db.example/dormouse",
		"postgres://dormouse:" + secret + " @:bad/%zz", "host=db.example password=" + secret,
	} {
		for _, args := range [][]string{{"serve", "--log-level", "debug"}, {"doctor"}} {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			out, errs, code := runIn(ctx, "", append([]string{"--data", data, "--store", at, "--runner", "/bin/true", "--listen", "127.0.0.1:0"}, args...)...)
			cancel()
			if code == 0 || strings.Contains(out+errs, secret) {
				t.Errorf("%v: exit %d: %s%s", args, code, out, errs)
			}
		}
	}
}

func TestTheDatabaseMayBeSaidInAFile(t *testing.T) {
	const secret = "swordfish"
	url := func(port string) string { return "postgres://dormouse:" + secret + "@127.0.0.1:" + port + "/dormouse" }
	file := func(text string) string {
		name := filepath.Join(t.TempDir(), "store")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	for name, v := range map[string]struct {
		env    map[string]string
		config string
		args   []string
		want   string
		code   int
	}{
		"by flag":                     {args: []string{"--store-file", file(url("1") + "\n")}, want: "127.0.0.1:1", code: exitError},
		"by variable":                 {env: map[string]string{"DORMOUSE_STORE_FILE": file(url("2"))}, want: "127.0.0.1:2", code: exitError},
		"by configuration":            {config: `{"store_file":"` + file(url("3")) + `"}`, want: "127.0.0.1:3", code: exitError},
		"flag before variable":        {args: []string{"--store-file", file(url("4"))}, env: map[string]string{"DORMOUSE_STORE": url("5")}, want: "127.0.0.1:4", code: exitError},
		"variable before configured":  {config: `{"store":"` + url("6") + `"}`, env: map[string]string{"DORMOUSE_STORE_FILE": file(url("7"))}, want: "127.0.0.1:7", code: exitError},
		"both":                        {args: []string{"--store", url("8"), "--store-file", file(url("9"))}, want: "leave one of them out", code: exitUsage},
		"no such file":                {args: []string{"--store-file", "/nowhere"}, want: "--store-file", code: exitError},
		"an empty file":               {args: []string{"--store-file", file("\n")}, want: "holds no URL", code: exitUsage},
		"an endless file":             {args: []string{"--store-file", "/dev/zero"}, want: "holds no URL", code: exitUsage},
		"another kind":                {args: []string{"--store-file", file("mysql://a:" + secret + "@b/c")}, want: "not a URL such as", code: exitUsage},
		"a password among parameters": {args: []string{"--store-file", file("postgres://dormouse@127.0.0.1:1/d?sslmode=bad&password=" + secret)}, want: "sslmode is invalid", code: exitError},
	} {
		t.Run(name, func(t *testing.T) {
			for key, value := range v.env {
				t.Setenv(key, value)
			}
			data := t.TempDir()
			if v.config != "" {
				if err := os.WriteFile(filepath.Join(data, configFile), []byte(v.config), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			for _, args := range [][]string{{"serve", "--runner", "/bin/true", "--listen", "127.0.0.1:0"}, {"store", "migrate"}} {
				out, errs, code := runIn(t.Context(), "", append(append([]string{"--data", data}, args...), v.args...)...)
				if text := out + errs; code != v.code || !strings.Contains(text, v.want) || strings.Contains(text, secret) {
					t.Errorf("%v: exit %d: %s", args, code, text)
				}
			}
		})
	}
}

func TestAServerThatOthersCouldNotReachIsRefused(t *testing.T) {
	for _, args := range [][]string{
		{"--store", "postgres://db.example/d", "--listen", ":7717"},
		{"--store", "postgres://db.example/d", "--listen", "0.0.0.0:7717"},
		{"--store", "postgres://db.example/d", "--listen", "[::]:7717"},
		{"--store", "postgres://db.example/d", "--advertise", "10.0.0.1"},
		{"--store", "postgres://db.example/d", "--advertise", "0.0.0.0:7717"},
		{"--store", "postgres://db.example/d", "--lease", "500ms"},
	} {
		if _, errs, code := runIn(t.Context(), "", append([]string{"--data", t.TempDir(), "serve"}, args...)...); code != exitUsage {
			t.Errorf("%v: exit %d: %s", args, code, errs)
		}
	}
}
