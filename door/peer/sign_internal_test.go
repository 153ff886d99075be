package peer

import (
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"
)

var testTime = time.Date(2026, 1, 2, 3, 4, 5, 678000, time.UTC)

func carried(s signature) http.Header { return http.Header{"Authorization": {s.header()}} }

func TestASignatureCoversAllOfARequest(t *testing.T) {
	key, body := []byte("key"), []byte(`{"a":1}`)
	good := sign(key, 1, 2, testTime, doPath, body)
	if read, ok := signatureOf(carried(good)); !ok || read != good || !read.of(key, http.MethodPost, doPath) || !read.covers(body) {
		t.Error("it is not its own")
	}
	for name, change := range map[string]func(*signature){
		"from another server": func(s *signature) { s.from = 3 },
		"for another server":  func(s *signature) { s.to = 3 },
		"the other way":       func(s *signature) { s.from, s.to = s.to, s.from },
		"of another time":     func(s *signature) { s.time++ },
		"with another nonce":  func(s *signature) { s.nonce[15]++ },
		"of another body":     func(s *signature) { s.body[0]++ },
		"without a code":      func(s *signature) { clear(s.mac[:]) },
	} {
		s := good
		if change(&s); s.of(key, http.MethodPost, doPath) {
			t.Errorf("it is good for a request %s", name)
		}
	}
	if good.of([]byte("kez"), http.MethodPost, doPath) || good.of(key, http.MethodGet, doPath) || good.of(key, http.MethodPost, followPath) || good.covers([]byte(`{"a":2}`)) {
		t.Error("it covers another request")
	}
	if again := sign(key, 1, 2, testTime, doPath, body); again.nonce == good.nonce || again.mac == good.mac {
		t.Error("the same request twice cannot be told apart")
	}
}

func TestAProofIsOfOneAnswerToOneRequest(t *testing.T) {
	key := []byte("key")
	asked := sign(key, 1, 2, testTime, doPath, nil)
	good := prove(key, asked, 2, http.StatusOK)
	header := func(p proof) http.Header { return http.Header{answerHeader: {p.header()}} }
	if read, err := proofOf(key, header(good), asked, http.StatusOK); err != nil || read != good {
		t.Errorf("it is not its own: %v", err)
	}
	refused := func(what string, h http.Header, key []byte, to signature, status int) {
		t.Helper()
		if _, err := proofOf(key, h, to, status); !errors.Is(err, errUnsigned) {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused("another key", header(good), []byte("kez"), asked, http.StatusOK)
	refused("another status", header(good), key, asked, http.StatusConflict)
	refused("the same request made again", header(good), key, sign(key, 1, 2, testTime, doPath, nil), http.StatusOK)
	for name, change := range map[string]func(*proof){
		"by another server":  func(p *proof) { p.by = 1 },
		"with another nonce": func(p *proof) { p.nonce[0]++ },
		"without a code":     func(p *proof) { clear(p.mac[:]) },
	} {
		p := good
		change(&p)
		refused(name, header(p), key, asked, http.StatusOK)
	}
	for _, text := range []string{"", "2", "1.2.3", "2.2..", "2.x." + good.header()[4:], "3" + good.header()[1:], good.header() + ".", good.header() + strings.Repeat("0", 9000)} {
		refused(text, http.Header{answerHeader: {text}}, key, asked, http.StatusOK)
	}
	again := prove(key, asked, 2, http.StatusOK)
	keys := map[string]bool{}
	for _, p := range []proof{good, again} {
		for _, way := range []string{toAsker, toAsked} {
			keys[string(p.key(key, way))] = true
		}
	}
	if len(keys) != 4 {
		t.Error("two streams, or two ways of one, have the same key")
	}
}

func TestARequestIsTakenOnceAndInItsTime(t *testing.T) {
	var n nonces
	now := testTime
	take := func(id byte, at time.Time) error { return n.take(nonce{id}, at.UnixMicro(), now.UnixMicro()) }
	for id, off := range []time.Duration{0, window, -window, window / 2} {
		if err := take(byte(id), now.Add(off)); err != nil {
			t.Errorf("%v off: %v", off, err)
		}
		if err := take(byte(id), now.Add(off)); !errors.Is(err, errReplayed) {
			t.Errorf("%v off, again: %v", off, err)
		}
	}
	for _, off := range []time.Duration{window + time.Microsecond, -window - time.Microsecond, 24 * time.Hour, -24 * time.Hour, 100 * 365 * 24 * time.Hour} {
		if err := take(9, now.Add(off)); !errors.Is(err, errStale) || !strings.Contains(err.Error(), "30s") {
			t.Errorf("%v off: %v", off, err)
		}
	}
	first := now // as long as it can come again it is known, and then it is too old
	for ; now.Before(first.Add(3 * window)); now = now.Add(window / 7) {
		want := errReplayed
		if now.After(first.Add(window)) {
			want = errStale
		}
		if err := take(0, first); !errors.Is(err, want) {
			t.Errorf("after %v: %v", now.Sub(first), err)
		}
	}
	if err := take(10, now); err != nil || n.count != 1 || len(n.seen) != 1 {
		t.Errorf("%d requests are remembered for ever, %v", n.count, err)
	}
	now = first // a clock that goes back makes nothing new again
	if err := take(0, first); !errors.Is(err, errStale) {
		t.Errorf("after the clock went back: %v", err)
	}
}

func TestWhatIsRememberedOfRequestsIsBounded(t *testing.T) {
	var n nonces
	now := testTime.UnixMicro()
	for i := range maxNonces {
		if err := n.take(nonce{byte(i), byte(i >> 8), byte(i >> 16)}, now, now); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.take(nonce{15: 1}, now, now); !errors.Is(err, errTooManyNonces) || !strings.Contains(err.Error(), fmt.Sprint(maxNonces)) {
		t.Errorf("one more: %v", err)
	}
	if err := n.take(nonce{1}, now, now); !errors.Is(err, errReplayed) {
		t.Errorf("one again: %v", err)
	}
	later := now + 3*window.Microseconds()
	if err := n.take(nonce{15: 1}, later, later); err != nil || n.count != 1 {
		t.Errorf("later: %v, %d remembered", err, n.count)
	}
}

func FuzzReadSignature(f *testing.F) {
	good := signature{from: 1, to: 2, time: testTime.UnixMicro(), nonce: nonce{1}} // the same in every process that fuzzes
	good.mac = good.code(testKey, http.MethodPost, doPath)
	p := proof{by: 2, nonce: nonce{2}}
	p.mac = p.code(testKey, good, http.StatusOK)
	for _, s := range []string{"", scheme, good.header(), p.header(), good.header()[:40], scheme + "2......", scheme + strings.Repeat(".", 4000), "Dormouse 1.2.00.00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		h := http.Header{"Authorization": {text}, answerHeader: {text}}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		s, ok := signatureOf(h)
		read, err := proofOf(testKey, h, good, http.StatusOK)
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > 64<<10 {
			t.Errorf("a header of %d bytes took %d of memory", len(text), took)
		}
		if err == nil && read != p {
			t.Errorf("%q proves something", text)
		}
		if !ok {
			return
		}
		if s.of(testKey, http.MethodPost, doPath) && s != good {
			t.Errorf("%q is taken for a signature", text)
		}
		if again, ok := signatureOf(carried(s)); !ok || again != s {
			t.Errorf("%q became %q", text, s.header())
		}
	})
}
