package rest_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/client"
	"github.com/dormouse-run/dormouse/door"
	"github.com/dormouse-run/dormouse/door/rest"
)

// Every error that a client is expected to test for is told by a code that the client
// knows it by.
func TestTheClientKnowsEveryErrorThatIsTold(t *testing.T) {
	for _, err := range []error{
		dormouse.ErrNotFound, dormouse.ErrInvalid, dormouse.ErrTooLarge, dormouse.ErrConflict, dormouse.ErrTerminated, dormouse.ErrLeaseLost,
		dormouse.ErrUnknownOutcome, dormouse.ErrDamaged, dormouse.ErrNewerLog, dormouse.ErrFull, dormouse.ErrUnavailable, dormouse.ErrBehind, dormouse.ErrClosing,
	} {
		if code := door.ReplyTo(err).Type; !errors.Is(&client.Error{Code: code}, err) {
			t.Errorf("%v is told as %q", err, code)
		}
	}
}

// calls asks for everything once.
func calls(ctx context.Context, c *client.Client) {
	const id, snap = dormouse.SessionID("sesn_a"), dormouse.SnapshotID("snap_a")
	tar := client.Tar{Reader: bytes.NewReader(nil)}
	_ = c.Ready(ctx)
	_, _ = c.Create(ctx, client.CreateOptions{})
	_, _ = c.List(ctx, client.ListOptions{})
	_, _ = c.Show(ctx, id)
	_, _ = c.Describe(ctx, id, client.DescribeOptions{})
	_, _ = c.Delete(ctx, id)
	_, _ = c.Interrupt(ctx, id, client.InterruptOptions{})
	_, _ = c.Retry(ctx, id, "")
	_, _ = c.Continue(ctx, id, "")
	_, _ = c.Hibernate(ctx, id)
	_, _ = c.Wake(ctx, id)
	_, _ = c.Archive(ctx, id)
	_, _ = c.Terminate(ctx, id, "")
	_, _ = c.Send(ctx, id, client.SendOptions{})
	_, _ = c.Queue(ctx, id)
	_, _ = c.CancelPrompt(ctx, id, "sevt_a")
	_, _ = c.Threads(ctx, id)
	_, _ = c.OpenThread(ctx, id, "")
	_, _ = c.Questions(ctx, id)
	_, _ = c.Answer(ctx, id, client.AnswerOptions{})
	_, _ = c.Wakeups(ctx, id)
	_, _ = c.Schedule(ctx, id, client.WakeupOptions{})
	_, _ = c.CancelWakeup(ctx, id, "wake_a")
	_, _ = c.Children(ctx, id, 0, "")
	_, _ = c.EndChild(ctx, id, "sesn_b")
	_, _ = c.Ops(ctx, id, 0)
	for range c.Follow(ctx, id, client.FollowOptions{Once: true}) {
	}
	_, _ = c.Exec(ctx, id, client.ExecOptions{}, nil)
	_, _ = c.EndExec(ctx, id, "sevt_a")
	_, _ = c.Processes(ctx, id)
	_, _ = c.GetFiles(ctx, id, "a")
	_, _ = c.PutFiles(ctx, id, "a", tar)
	_, _ = c.TakeSnapshot(ctx, id, client.SnapshotOptions{})
	_, _ = c.Snapshots(ctx, id, 0, "")
	_, _ = c.Snapshot(ctx, id, snap)
	_ = c.DeleteSnapshot(ctx, id, snap)
	_, _ = c.PruneSnapshots(ctx, id, client.PruneOptions{})
	_, _ = c.ExportSnapshot(ctx, id, snap, "")
	_, _ = c.ImportSnapshot(ctx, id, client.SnapshotOptions{}, tar)
	_, _ = c.ImportSession(ctx, client.CreateOptions{}, client.SnapshotOptions{}, tar)
	_, _ = c.Restore(ctx, id, client.RestoreOptions{})
	_, _ = c.Revert(ctx, id, client.RevertOptions{})
	_, _ = c.Branch(ctx, id, client.BranchOptions{})
	_, _ = c.Diff(ctx, id, snap, client.DiffOptions{})
	_, _ = c.OpenTerminal(ctx, id, client.TerminalOptions{})
	_, _ = c.Terminals(ctx, id)
	_ = c.EndTerminal(ctx, id, "term_a")
	_, _ = c.Ports(ctx, id)
	_, _ = c.DialPort(ctx, id, 80)
	_, _ = c.VaultKeys(ctx)
	_, _ = c.Rekey(ctx, false)
}

// For every route there is a method, and for every method a route.
func TestTheClientHasAMethodForEveryRoute(t *testing.T) {
	var routes []string
	mux := http.NewServeMux()
	for _, r := range rest.New(rest.Config{}).Routes() {
		for method := range r.Methods {
			routes = append(routes, method+" "+r.Pattern)
			mux.HandleFunc(method+" "+r.Pattern, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				w.WriteHeader(http.StatusTeapot)
			})
		}
	}
	var asked []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, pattern := mux.Handler(r)
		asked = append(asked, pattern)
		if pattern == "" {
			t.Errorf("%s %s is no route", r.Method, r.URL.Path)
		}
		mux.ServeHTTP(w, r)
	}))
	defer s.Close()
	c, err := client.New(client.Options{URL: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	calls(t.Context(), c)
	for _, route := range routes {
		forOperators := strings.HasSuffix(route, "/healthz") || strings.HasSuffix(route, "/metrics")
		if !slices.Contains(asked, route) && !forOperators {
			t.Errorf("no method asks %s", route)
		}
	}
}
