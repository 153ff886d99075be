package snapshot_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/snapshot"
	"github.com/dormouse-run/dormouse/snapshot/snapshottest"
)

var key = snapshot.Key{1, 2, 3}

func TestARefComesBackAndIsOurs(t *testing.T) {
	minted := snapshot.Mint(key, "sesn_1", "snap_1")
	got, err := snapshot.ParseRef(minted.Bytes())
	if err != nil || got.Session != "sesn_1" || got.Snapshot != "snap_1" || got.Check(key) != nil {
		t.Fatalf("ref is %+v, %v", got, err)
	}
	if !bytes.Equal(got.Bytes(), minted.Bytes()) {
		t.Errorf("it is %s, was %s", got.Bytes(), minted.Bytes())
	}
	// What was minted once is good for ever.
	want := snapshottest.Outer(`{"session":"sesn_1","snapshot":"snap_1","mac":"ac4e801d6641f0c28c397f4a0909bf06bae8a8eb9e8dd2ab59dde94bfbed9b3c"}`)
	if string(minted.Bytes()) != want {
		t.Errorf("it is %s, want %s", minted.Bytes(), want)
	}
}

func TestARefOfSomebodyElseIsNotFound(t *testing.T) {
	ours := string(snapshot.Mint(key, "sesn_1", "snap_1").Bytes())
	for name, raw := range map[string]string{
		"another session":  strings.Replace(ours, "sesn_1", "sesn_2", 1),
		"another snapshot": strings.Replace(ours, "snap_1", "snap_2", 1),
		"another key":      string(snapshot.Mint(snapshot.Key{9}, "sesn_1", "snap_1").Bytes()),
		"no mac":           snapshottest.Outer(snapshottest.Inner("")),
	} {
		r, err := snapshot.ParseRef([]byte(raw))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := r.Check(key); !errors.Is(err, dormouse.ErrNotFound) {
			t.Errorf("%s: check = %v, want ErrNotFound", name, err)
		}
	}
	if err := (snapshot.Ref{}).Check(key); !errors.Is(err, dormouse.ErrNotFound) {
		t.Errorf("check of no ref = %v", err)
	}
}

func TestWhatIsNoRefIsRefused(t *testing.T) {
	for name, raw := range snapshottest.HostileRefs() {
		if r, err := snapshot.ParseRef([]byte(raw)); !errors.Is(err, dormouse.ErrInvalid) {
			t.Errorf("%s: ref is %+v, %v, want ErrInvalid", name, r, err)
		}
	}
	long := snapshottest.Outer(snapshottest.Inner(`,"x":"` + strings.Repeat("x", snapshot.MaxRef) + `"`))
	if _, err := snapshot.ParseRef([]byte(long)); !errors.Is(err, dormouse.ErrTooLarge) {
		t.Errorf("long: %v, want ErrTooLarge", err)
	}
}

// What others have put into a ref comes back byte for byte.
func TestWhatOthersSayInARefComesBack(t *testing.T) {
	for _, more := range []string{
		`,"x":1e400`, `,"x":1.0`, `,"x":12345678901234567890`, ` , "x" : { "a":[1, 2 ,{}] , "a":null}`, `,"x":"\u003c<\ud800"`, `,"":""`,
	} {
		raw := snapshottest.Inner(more)
		r, err := snapshot.ParseRef([]byte(snapshottest.Outer(raw)))
		if err != nil {
			t.Fatalf("%s: %v", more, err)
		}
		if got := string(r.Bytes()); got != snapshottest.Outer(raw) {
			t.Errorf("it is %s, was %s", got, snapshottest.Outer(raw))
		}
	}
}

func TestARefIsAJSONValueAmongOthers(t *testing.T) {
	var v struct {
		Ref snapshot.Ref `json:"ref"`
	}
	ours := snapshot.Mint(key, "sesn_1", "snap_1")
	if err := json.Unmarshal([]byte(`{"ref":`+string(ours.Bytes())+`}`), &v); err != nil || v.Ref.Check(key) != nil {
		t.Fatalf("ref is %+v, %v", v.Ref, err)
	}
	if raw, err := json.Marshal(v); err != nil || string(raw) != `{"ref":`+string(ours.Bytes())+`}` {
		t.Errorf("it is %s, %v", raw, err)
	}
	if _, err := json.Marshal(snapshot.Ref{}); err == nil {
		t.Error("no ref was written")
	}
}

func TestKeysAreNotPrinted(t *testing.T) {
	if got := fmt.Sprintf("%v %+v %#v %s %x", key, key, key, key, struct{ K snapshot.Key }{key}); strings.Contains(got, "1 2 3") || strings.Contains(got, "010203") {
		t.Errorf("printed is %s", got)
	}
}

func FuzzRef(f *testing.F) {
	f.Add(snapshot.Mint(key, "sesn_1", "snap_1").Bytes())
	f.Add([]byte(snapshottest.Outer(snapshottest.Inner(`,"x":[1e400,{"a":"\ud800"}]`))))
	f.Add([]byte(snapshottest.Outer(snapshottest.Inner(`,"session":"sesn_2"`))))
	f.Add([]byte(`{"providerId":"dormouse","ref":{}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		r, err := snapshot.ParseRef(raw)
		if err != nil {
			if !errors.Is(err, dormouse.ErrInvalid) && !errors.Is(err, dormouse.ErrTooLarge) {
				t.Errorf("it is refused with %v", err)
			}
			return
		}
		if r.Check(key) == nil && (r.Session != "sesn_1" || r.Snapshot != "snap_1") {
			t.Errorf("%+v was forged", r)
		}
		again, err := snapshot.ParseRef(r.Bytes())
		if err != nil || !bytes.Equal(again.Bytes(), r.Bytes()) || again.Session != r.Session || again.Snapshot != r.Snapshot {
			t.Errorf("it is %s, %v, was %s", again.Bytes(), err, r.Bytes())
		}
	})
}
