package attacks

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/dormouse-run/dormouse/internal/sleep"
)

// frames is how a program inside speaks to the server.
const frames = `
import socket, json, struct, sys
def say(s, f):
    b = json.dumps(f).encode(); s.sendall(struct.pack(">II", len(b), 0) + b)
def take(s, n):
    b = b""
    while len(b) < n:
        c = s.recv(n - len(b))
        if not c: return None
        b += c
    return b
def hear(s):
    h = take(s, 8)
    if h is None: return None
    head, bulk = struct.unpack(">II", h)
    b = take(s, head)
    if b is None or bulk and take(s, bulk) is None: return None
    return json.loads(b)
def dial():
    s = socket.socket(socket.AF_UNIX); s.settimeout(5); s.connect("/.dormouse/run/socket"); return s
def play(secret):
    s = dial()
    say(s, {"kind": "hello", "hello": {"protocol": 3, "secret": secret, "fence": {"session": "", "generation": 0, "epoch": 0}}})
    return s
`

func channels() []Case {
	return []Case{
		{"runner-wrong-secret", "playing the runner with a wrong secret", refused(python(frames + `
for secret in ["", "wrong", "x" * 100000, "\0"]:
    try:
        f = hear(play(secret)); print("BROKE" if f and f.get("kind") == "bind" else "turned away", f and f.get("kind"))
    except OSError as e: print("turned away", e)`))},
		{"runner-garbage", "garbage, huge lengths and a flood at the runner's socket", refusing(python(frames+`
import os
for b in [b"", b"\0\0\0\0", b"\xff" * 64, b"\x7f\xff\xff\xff", b"GET / HTTP/1.1\r\n\r\n", os.urandom(100000), struct.pack(">I", 10) + b"[" * 10]:
    try:
        s = dial(); s.sendall(b); s.close()
    except OSError as e: pass
held = []
try:
    for i in range(200): held.append(dial())
except OSError as e: pass
print("sent", len(held) > 0)`), "sent True")},
		{"runner-right-secret", "playing the runner with its secret, and lying", rightSecret},
		{"runner-signals", "every signal for the runner", deadly("for s in $(seq 64); do kill -$s 1 2>/dev/null; sleep 0.02; done")},
		{"kill-init", "kill -9 of the runner", deadly("kill -9 1; sleep 0.5")},
		{"kill-everything", "kill -9 of all there is", deadly("kill -9 -1; sleep 0.5")},
	}
}

// rightSecret has a program take the runner's place. It may hurt its own session
// as long as it runs, and no other.
func rightSecret(ctx context.Context, w *World) (string, error) {
	lie := frames + `
import time
end = time.time() + 5
seen = set()
while time.time() < end:
    try:
        s = play(open("/.dormouse/run/secret").read().strip())
        while time.time() < end:
            f = hear(s)
            if f is None: break
            seen.add(f["kind"])
            if f["kind"] == "bind": say(s, {"kind": "bound"})
            elif "id" in f:
                for lie in [{"report": {"op": "op_of_somebody_else", "state": "finished", "result": {"exit": 0}}}, {"victims": [{"pid": -1}] * 1000}, {"usage": {"rss": -1}}, {}]:
                    say(s, {"kind": "reply", "id": f["id"], **lie})
                    say(s, {"kind": "reply", "id": f["id"] + 1, **lie})
                say(s, {"kind": "output", "id": f["id"], "output": "A" * 400000})
    except OSError as e: seen.add(str(e))
print("heard", *sorted(seen))`
	if _, err := w.Me.Do(ctx, "cat >lie.py <<'END'"+lie+"\nEND\nsetsid /usr/bin/python3 lie.py >lies 2>&1 &"); err != nil {
		return "", err
	}
	// While it lies, the neighbour is served as ever.
	if err := w.Neighbour.answers(ctx); err != nil {
		return "", fmt.Errorf("a neighbour: %w", err)
	}
	for {
		if err := w.Me.answers(ctx); err != nil {
			return "", err
		}
		d, err := w.Me.Do(ctx, "cat lies")
		switch {
		case err == nil && strings.HasPrefix(d.Output, "heard") && strings.Contains(d.Output, "bind"):
			return "only its own session heard of it: " + d.Output, nil
		case err == nil && strings.Contains(d.Output, "Traceback"):
			return "", fmt.Errorf("the attack itself failed: %s", oneLine(d.Output))
		case sleep.For(ctx, 200*time.Millisecond) != nil:
			return "", fmt.Errorf("the lies did not end: %+v, %w", d, err)
		}
	}
}

// deadly runs what may end the sandbox, whose session must then get another.
func deadly(command string) func(context.Context, *World) (string, error) {
	return func(ctx context.Context, w *World) (string, error) {
		if err := w.Me.answers(ctx); err != nil {
			return "", err
		}
		d, err := w.Me.Do(ctx, command+"; echo survived")
		if err == nil && strings.Contains(d.Output, "survived") {
			return "the runner lives on", nil
		}
		if err := w.Me.answers(ctx); err != nil {
			return "", err
		}
		return "the sandbox ended, and the session has another", nil
	}
}
