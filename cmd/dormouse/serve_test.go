package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/dormouse-run/dormouse/auth"
	"github.com/dormouse-run/dormouse/packages"
	"github.com/dormouse-run/dormouse/store/sqlite"
)

// serving is a server in this process. Its sandboxes cannot start, which is all
// right for sessions that need none.
type serving struct {
	t       *testing.T
	config  config
	url     string
	signals chan os.Signal
	ended   chan error
	out     *safeBuffer
}

func startServer(t *testing.T, data string, change ...func(*config)) *serving {
	t.Helper()
	s := &serving{t: t, signals: make(chan os.Signal, 3), ended: make(chan error, 1), out: new(safeBuffer), config: config{
		Sandbox: sandboxLocal,
		Data:    data, Listen: "127.0.0.1:0", Model: "offline", Runner: "/bin/true", DropAfter: time.Second, LogFormat: "text", LogLevel: "error",
	}}
	for _, f := range change {
		f(&s.config)
	}
	usualMask()
	t.Cleanup(usualMask)
	go func() {
		s.ended <- serve(context.WithoutCancel(t.Context()), s.config, s.signals, s.out, slog.New(slog.DiscardHandler))
	}()
	eventually(t, "listening", func() bool {
		select {
		case err := <-s.ended:
			t.Fatalf("the server ended: %v", err)
		default:
		}
		return strings.Contains(s.out.String(), "\n\n")
	})
	first, _, _ := strings.Cut(s.out.String(), "\n")
	s.url = strings.TrimPrefix(first, "dormouse is listening on ")
	return s
}

func (s *serving) get(path string, token bool) (int, string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.url+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	if token {
		t, err := auth.ReadToken(filepath.Join(s.config.Data, tokenFile))
		if err != nil {
			s.t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+t)
	}
	res, err := newHTTP().Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

func (s *serving) stop() error {
	s.t.Helper()
	s.signals <- syscall.SIGTERM
	select {
	case err := <-s.ended:
		return err
	case <-time.After(20 * time.Second):
		s.t.Fatal("the server does not stop")
		return nil
	}
}

func TestServerPrintsItsAddressAndStopsOnASignal(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	s := startServer(t, data)
	for _, want := range []string{"http://127.0.0.1:", filepath.Join(data, tokenFile), "dormouse session create --data " + data} {
		if !strings.Contains(s.out.String(), want) {
			t.Errorf("not told: %s", want)
		}
	}
	if status, b := s.get("/readyz", false); status != http.StatusOK {
		t.Errorf("ready: %d %s", status, b)
	}
	out, errs, code := runIn(t.Context(), "", "--data", data, "session", "create", "--cold", "--prompt", "hello", "--follow")
	if code != 0 || !strings.Contains(out, "No model is configured") {
		t.Errorf("exit %d: %s%s", code, out, errs)
	}
	for _, want := range []string{
		"dormouse_prompts_accepted_total 1", `dormouse_turns_ended_total{outcome="completed"} 1`, `dormouse_ops_finished_total{kind="model_call",outcome="ok"} 1`,
		"dormouse_sessions_loaded", "dormouse_followers", `dormouse_http_request_seconds_count{method="POST",route="/api/sessions",status="201"} 1`, "go_goroutines",
	} {
		// A follower may see the end of a turn before it is counted.
		eventually(t, "metrics with "+want, func() bool {
			status, b := s.get("/metrics", true)
			return status == http.StatusOK && strings.Contains(b, want)
		})
	}
	if err := s.stop(); err != nil {
		t.Errorf("stopped with %v", err)
	}
	if _, err := os.Stat(filepath.Join(data, serverFile)); err == nil {
		t.Error("the address outlives the server")
	}
}

func TestSecondServerOnTheSameDataIsRefused(t *testing.T) {
	data := t.TempDir()
	s := startServer(t, data)
	for _, args := range [][]string{{"serve", "--runner", "/bin/true", "--listen", "127.0.0.1:0"}, {"store", "rebuild"}} {
		_, errs, code := runIn(t.Context(), "", append([]string{"--data", data}, args...)...)
		if code != exitError || !strings.Contains(errs, sqlite.ErrLocked.Error()) {
			t.Errorf("%v: exit %d: %s", args, code, errs)
		}
	}
	if out, errs, code := runIn(t.Context(), "", "--data", data, "doctor", "--runner", "/bin/true"); code != 0 || !strings.Contains(out, "answers at") {
		t.Errorf("doctor: exit %d: %s%s", code, out, errs)
	}
	if err := s.stop(); err != nil {
		t.Error(err)
	}
}

// A request that never ends keeps a clean stop waiting; the second signal does
// not wait for it.
func TestSecondSignalSkipsToTheEnd(t *testing.T) {
	s := startServer(t, t.TempDir())
	token, err := auth.ReadToken(filepath.Join(s.config.Data, tokenFile))
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "POST /api/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 10\r\nExpect: 100-continue\r\nAuthorization: Bearer "+token+"\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	// The server asks for the body once it is at work on the request.
	if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || !strings.Contains(line, "100 Continue") {
		t.Fatalf("answered %q, %v", line, err)
	}
	s.signals <- syscall.SIGTERM
	select {
	case err := <-s.ended:
		t.Fatalf("the request was not waited for: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	if err := s.stop(); err != nil {
		t.Errorf("stopped with %v", err)
	}
	again := startServer(t, s.config.Data) // the directory was given back
	if err := again.stop(); err != nil {
		t.Error(err)
	}
}

func TestStoppedStoreIsCheckedAndRebuilt(t *testing.T) {
	data := t.TempDir()
	s := startServer(t, data)
	for range 3 {
		if _, errs, code := runIn(t.Context(), "", "--data", data, "session", "create", "--cold", "--prompt", "hello", "--follow"); code != 0 {
			t.Fatal(errs)
		}
	}
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"--check"}, {}, {"--check"}} {
		out, errs, code := runIn(t.Context(), "", append([]string{"--data", data, "store", "rebuild"}, args...)...)
		if code != 0 || out != "rebuild: sessions=3 changed=0\n" {
			t.Errorf("%v: exit %d: %s%s", args, code, out, errs)
		}
	}
}

func TestDoctorReportsAsJSON(t *testing.T) {
	out, errs, code := runIn(t.Context(), "", "--data", t.TempDir(), "doctor", "--json", "--runner", "/nowhere/runner", "--listen", "127.0.0.1:0")
	if code != exitError {
		t.Errorf("exit %d: %s", code, errs)
	}
	var report struct {
		Checks []finding `json:"checks"`
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, f := range report.Checks {
		if want := f.Check != "runner"; f.OK != want || f.Detail == "" {
			t.Errorf("%+v", f)
		}
	}
}

func TestFlagsWinOverTheEnvironmentAndThatOverTheFile(t *testing.T) {
	data := t.TempDir()
	file := `{"listen":"127.0.0.1:1","model":"file","sleep_after":"1m","host":["a.example","b.example"]}`
	if err := os.WriteFile(filepath.Join(data, "config.json"), []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("DORMOUSE_LISTEN", "127.0.0.1:2")
	t.Setenv("DORMOUSE_MODEL", "environment")
	t.Setenv("DORMOUSE_DATA", data)
	load := func(args ...string) (c config, err error) {
		cmd := &cobra.Command{}
		cmd.Flags().String("data", "", "")
		c.flags(cmd.Flags())
		if err := cmd.ParseFlags(args); err != nil {
			t.Fatal(err)
		}
		if err := fill(cmd); err != nil {
			return c, err
		}
		return c, fillFromFile(cmd)
	}
	c, err := load("--listen", "127.0.0.1:3")
	if err != nil {
		t.Fatal(err)
	}
	if c.Listen != "127.0.0.1:3" || c.Model != "environment" || c.SleepAfter != time.Minute || len(c.Hosts) != 2 {
		t.Errorf("loaded %+v", c)
	}
	for text, says := range map[string]string{`{"lisen":"x"}`: "lisen", `{"data":"x"}`: "data", `{"sleep_after":5}`: "sleep_after", `{"sleep_after":"x"}`: "sleep-after", `[`: "config.json", `{"model":"a","model":"b"}`: "model: is given twice", `{} {}`: "config.json"} {
		if err := os.WriteFile(filepath.Join(data, "config.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := load(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// However the address is written, sandboxes are kept from where the server listens: the
// address itself is compared, not the text.
func TestSandboxesAreKeptFromWhereTheServerListens(t *testing.T) {
	free := func() string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		_, port, _ := net.SplitHostPort(l.Addr().String())
		return port
	}
	for _, listen := range []string{"127.0.0.1:0", "localhost:0", ":0", "0.0.0.0:0", "[::]:0", ":" + free(), "localhost:" + free(), "[::1]:0"} {
		t.Run(listen, func(t *testing.T) {
			s, err := open(t.Context(), config{
				Data: t.TempDir(), Listen: listen, Sandbox: sandboxLocal, Model: "offline", Runner: "/bin/true", DropAfter: time.Second,
				EgressAllow: []string{"127.0.0.0/8", "::1"}, Advertise: "192.0.2.7:4000", Snapshots: "off",
			}, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			s.stop = func() {}
			defer func() {
				if err := s.shutdown(t.Context(), nil); err != nil {
					t.Error(err)
				}
			}()
			way := wayOut(s.config, func() packages.Sources { return packages.Sources{} }, s.log)
			_, port, _ := net.SplitHostPort(s.listener.Addr().String())
			hosts := []string{"127.0.0.1"}
			if listen == "[::1]:0" {
				hosts = []string{"::1"}
			}
			for _, host := range hosts {
				c, err := way.Dial(t.Context(), "tcp", net.JoinHostPort(host, port))
				if err == nil {
					_ = c.Close()
				}
				if err == nil || !strings.Contains(err.Error(), "it is this server") {
					t.Errorf("%s: %v", host, err)
				}
			}
			if _, err := way.Dial(t.Context(), "tcp", "192.0.2.7:4000"); err == nil || !strings.Contains(err.Error(), "it is this server") {
				t.Errorf("where others are told that it is: %v", err)
			}
		})
	}
}
