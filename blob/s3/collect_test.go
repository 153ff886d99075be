package s3_test

import (
	"bytes"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/blob/s3"
)

// old puts a blob and makes it look as if that were two hours ago. It returns a
// time in between.
func old(t *testing.T, s *s3.Store, o s3.Options, b []byte) (dormouse.Digest, time.Time) {
	t.Helper()
	d, err := s.Put(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	age(t, path(o, d), 2*time.Hour)
	return d, time.Now().Add(-time.Hour)
}

func age(t *testing.T, file string, by time.Duration) {
	t.Helper()
	if err := os.Chtimes(file, time.Time{}, time.Now().Add(-by)); err != nil {
		t.Fatal(err)
	}
}

// announcements are the files by which collectors announce that they delete d.
func announcements(t *testing.T, o s3.Options, d dormouse.Digest) []string {
	t.Helper()
	hex := strings.TrimPrefix(string(d), "sha256:")
	found, err := filepath.Glob(server.Path(bucket, o.Prefix+"/collecting/"+hex[:2]+"/"+hex+"/*"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// The collector is stopped before and after each of its requests, and the blob
// is put meanwhile: it must be there when that has returned and when all is over.
func TestWhatIsPutAtAnyInstantOfACollectionStays(t *testing.T) {
	t.Parallel()
	asks := []string{"HEAD sha256", "HEAD put", "PUT collecting", "DELETE sha256", "DELETE put", "DELETE collecting"}
	for _, again := range []bool{false, true} { // whether it was put again before
		for _, name := range asks {
			for nth := range 2 {
				if nth > 0 && !strings.HasPrefix(name, "HEAD") {
					continue
				}
				for _, answered := range []bool{false, true} {
					meanwhile(t, again, name, nth, answered)
				}
			}
		}
	}
}

func meanwhile(t *testing.T, again bool, name string, nth int, answered bool) {
	t.Helper()
	o := options(t)
	puts := newPutter(t, o)
	collects := o
	p := newProxy(t, &collects)
	c := open(t, collects)
	d, before := old(t, puts.s, o, small)
	if again {
		if _, err := puts.s.Put(t.Context(), small); err != nil {
			t.Fatal(err)
		}
		hex := strings.TrimPrefix(string(d), "sha256:")
		age(t, server.Path(bucket, o.Prefix+"/put/"+hex[:2]+"/"+hex), 2*time.Hour)
	}
	var done <-chan error
	reached := false
	p.begin(on(name, func(w http.ResponseWriter, r *http.Request, _ string, seen int, next http.Handler) {
		if seen != nth {
			next.ServeHTTP(w, r)
			return
		}
		reached = true
		if answered {
			changes(func(_ http.Header, b []byte) []byte {
				done = puts.start(t)
				return b
			})(w, r, name, seen, next)
			return
		}
		done = puts.start(t)
		next.ServeHTTP(w, r)
	}))
	if _, err := c.Collect(t.Context(), d, before); err != nil {
		t.Errorf("%s %d: collect: %v", name, nth, err)
	}
	if !reached {
		t.Fatalf("%s %d was not asked", name, nth)
	}
	if err := <-done; err != nil {
		t.Errorf("%s %d, answered %t, put before %t: put: %v", name, nth, answered, again, err)
	}
	if b, err := puts.s.Get(t.Context(), d); err != nil || !bytes.Equal(b, small) {
		t.Errorf("%s %d, answered %t, put before %t: get = %q, %v", name, nth, answered, again, b, err)
	}
	if left := announcements(t, o, d); len(left) > 0 {
		t.Errorf("%s %d: announcements left: %v", name, nth, left)
	}
}

// putter puts while a request of another is held.
type putter struct {
	s *s3.Store
	p *proxy
}

func newPutter(t *testing.T, o s3.Options) *putter {
	t.Helper()
	p := newProxy(t, &o)
	return &putter{open(t, o), p}
}

// start puts, and returns when the put has ended or waits for the request that is
// held.
func (p *putter) start(t *testing.T) <-chan error {
	done, ended, waits := make(chan error, 1), make(chan struct{}), make(chan struct{})
	p.p.begin(on("LIST collecting", func(w http.ResponseWriter, r *http.Request, _ string, seen int, next http.Handler) {
		if seen == 1 { // it looks again, so it waits
			close(waits)
		}
		next.ServeHTTP(w, r)
	}))
	go func() {
		defer close(ended)
		_, err := p.s.Put(t.Context(), small)
		done <- err
	}()
	select {
	case <-ended:
	case <-waits:
	}
	return done
}

func TestWhoDiedCollectingIsWaitedForOnce(t *testing.T) {
	t.Parallel()
	o := options(t)
	p := newProxy(t, &o)
	s := open(t, o)
	s.SetGrace(time.Second)
	d, before := old(t, s, o, small)
	// The deletion is executed, and its response is lost.
	p.begin(on("DELETE sha256", func(w http.ResponseWriter, r *http.Request, _ string, _ int, next http.Handler) {
		next.ServeHTTP(discard{http.Header{}}, r)
		reset(w)
	}))
	if collected, err := s.Collect(t.Context(), d, before); collected || err == nil {
		t.Errorf("collect = %t, %v", collected, err)
	}
	if n := p.count("DELETE sha256"); n != 1 {
		t.Errorf("a deletion whose end is unknown was sent %d times", n)
	}
	if left := announcements(t, o, d); len(left) != 1 {
		t.Fatalf("announcements = %v, want the one of who died", left)
	}
	for _, want := range []bool{true, false} {
		p.begin(truth)
		if _, err := s.Put(t.Context(), small); err != nil {
			t.Fatal(err)
		}
		if waited := p.count("LIST collecting") > 1; waited != want {
			t.Errorf("put waited: %t, want %t", waited, want)
		}
		if b, err := s.Get(t.Context(), d); err != nil || !bytes.Equal(b, small) {
			t.Errorf("get = %q, %v", b, err)
		}
	}
}

// discard takes a response that is lost.
type discard struct{ h http.Header }

func (d discard) Header() http.Header         { return d.h }
func (d discard) Write(b []byte) (int, error) { return len(b), nil }
func (d discard) WriteHeader(int)             {}

func TestWhoLeavesWhileCollectingTakesItsAnnouncementBack(t *testing.T) {
	t.Parallel()
	o := options(t)
	p := newProxy(t, &o)
	s := open(t, o)
	d, before := old(t, s, o, small)
	p.begin(on("HEAD sha256", func(w http.ResponseWriter, r *http.Request, name string, seen int, next http.Handler) {
		if seen == 1 {
			refuses(http.StatusForbidden, "AccessDenied")(w, r, name, seen, next)
			return
		}
		next.ServeHTTP(w, r)
	}))
	if collected, err := s.Collect(t.Context(), d, before); collected || err == nil {
		t.Errorf("collect = %t, %v", collected, err)
	}
	if left := announcements(t, o, d); len(left) != 0 {
		t.Errorf("announcements left: %v", left)
	}
	if b, err := s.Get(t.Context(), d); err != nil || !bytes.Equal(b, small) {
		t.Errorf("get = %q, %v", b, err)
	}
}

func TestEachSweepsWhatACrashLeft(t *testing.T) {
	t.Parallel()
	o := options(t)
	p := newProxy(t, &o)
	s := open(t, o)
	var left []dormouse.Digest
	for _, text := range []string{"long ago", "just now"} {
		d, before := old(t, s, o, []byte(text))
		p.begin(on("DELETE sha256", resets))
		if _, err := s.Collect(t.Context(), d, before); err == nil {
			t.Fatal("it was collected")
		}
		left = append(left, d)
	}
	p.begin(truth)
	for _, file := range announcements(t, o, left[0]) {
		age(t, file, 48*time.Hour)
	}
	none := errors.New("no more")
	if err := s.Each(t.Context(), time.Now().Add(-time.Hour), func(dormouse.Digest) error { return none }); !errors.Is(err, none) {
		t.Errorf("each = %v", err)
	}
	if got := announcements(t, o, left[0]); len(got) != 0 {
		t.Errorf("an announcement of long ago is left: %v", got)
	}
	if got := announcements(t, o, left[1]); len(got) != 1 {
		t.Errorf("an announcement of just now is gone: %v", got)
	}
}

func TestEachEndsUploadsThatNobodyFinishes(t *testing.T) {
	t.Parallel()
	o := options(t)
	p := newProxy(t, &o)
	s := open(t, o)
	s.SetGrace(time.Second)
	no := refuses(http.StatusForbidden, "AccessDenied")
	p.begin(func(w http.ResponseWriter, r *http.Request, name string, before int, next http.Handler) {
		if name == "PART 2" || name == "ABORT sha256" {
			no(w, r, name, before, next)
			return
		}
		next.ServeHTTP(w, r)
	})
	if _, _, err := s.PutFrom(t.Context(), large(20<<20)); err == nil {
		t.Fatal("it was put")
	}
	each := func(age string) int {
		t.Helper()
		p.begin(on("UPLOADS bucket", changes(func(h http.Header, b []byte) []byte {
			b = initiated.ReplaceAll(b, []byte("<Initiated>"+age+"</Initiated>"))
			h.Set("Content-Length", strconv.Itoa(len(b)))
			return b
		})))
		if err := s.Each(t.Context(), time.Now(), func(dormouse.Digest) error { return nil }); err != nil {
			t.Fatal(err)
		}
		return p.count("ABORT sha256")
	}
	if n := each(time.Now().UTC().Format(time.RFC3339)); n != 0 {
		t.Errorf("%d uploads of just now were ended", n)
	}
	if n := each("2020-01-02T03:04:05Z"); n != 1 {
		t.Errorf("%d uploads of long ago were ended, want 1", n)
	}
	if n := each("2020-01-02T03:04:05Z"); n != 0 {
		t.Errorf("%d uploads were left", n)
	}
}

var initiated = regexp.MustCompile("<Initiated>[^<]*</Initiated>")

func TestEachPassesOverWhatIsNoBlob(t *testing.T) {
	t.Parallel()
	o := options(t)
	s := open(t, o)
	hex := strings.Repeat("a", 64)
	for _, key := range []string{"sha256/README", "sha256/ab/short", "sha256/bb/" + hex, "other/aa/" + hex} {
		file := server.Path(bucket, o.Prefix+"/"+key)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	err := s.Each(t.Context(), time.Now().Add(time.Hour), func(d dormouse.Digest) error {
		t.Errorf("blob %s", d)
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
