package s3_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/blob"
	"github.com/dormouse-run/dormouse/blob/blobtest"
	"github.com/dormouse-run/dormouse/blob/s3"
	"github.com/dormouse-run/dormouse/internal/s3server"
)

const bucket = "blobs"

// server is what all tests share; each has a prefix of its own.
var server *s3server.Server

func TestMain(m *testing.M) {
	var err error
	if server, err = s3server.Start(context.Background(), bucket); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	// The server's own goroutine lives until all tests have ended.
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent(), goleak.Cleanup(func(code int) {
		if err := server.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
		os.Exit(code)
	}))
}

var prefixes atomic.Int64

// options say how to reach the server.
func options(t *testing.T) s3.Options {
	t.Helper()
	return s3.Options{
		Endpoint: server.URL(), Region: s3server.Region, Bucket: bucket, Prefix: fmt.Sprintf("test/%d", prefixes.Add(1)),
		AccessKey: s3server.AccessKey, SecretKey: s3server.SecretKey, Temp: t.TempDir(),
		// A server on the same machine is never silent for long, however busy it is.
		Patience: 30 * time.Second,
	}
}

func open(t *testing.T, o s3.Options) *s3.Store {
	t.Helper()
	s, err := s3.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// tick is more than the second that times are rounded to.
const tick = blobtest.Tick(1100 * time.Millisecond)

// It counts memory, so that it is alone.
func TestStoreKeepsItsPromises(t *testing.T) {
	blobtest.Run(t, func(t *testing.T) blob.Store { return open(t, options(t)) })
	blobtest.RunCollectable(t, tick, func(t *testing.T) blobtest.Collectable { return open(t, options(t)) })
}

// Two stores of one prefix are what two servers are to each other.
func TestWhatAnotherStorePutsIsNotCollected(t *testing.T) {
	t.Parallel()
	o := options(t)
	blobtest.PutAgainWhileCollecting(t, tick, open(t, o), open(t, o))
}

func TestBlobsAreWhereTheirDigestsSay(t *testing.T) {
	t.Parallel()
	o := options(t)
	s := open(t, o)
	d, err := s.Put(t.Context(), []byte("hello"))
	if err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(path(o, d)); err != nil || string(b) != "hello" {
		t.Errorf("object = %q, %v", b, err)
	}
	if got := s.String(); got != "s3://"+bucket+"/"+o.Prefix {
		t.Errorf("store = %s", got)
	}
	if b, err := open(t, o).Get(t.Context(), d); err != nil || string(b) != "hello" {
		t.Errorf("get from another store = %q, %v", b, err)
	}
}

// path is the file in which the server keeps a blob.
func path(o s3.Options, d dormouse.Digest) string {
	hex := strings.TrimPrefix(string(d), "sha256:")
	return server.Path(bucket, o.Prefix+"/sha256/"+hex[:2]+"/"+hex)
}

func TestGetMustNeverReturnOtherBytes(t *testing.T) {
	t.Parallel()
	for name, rotten := range map[string]string{"changed": "hellO", "cut off": "hel", "emptied": "", "longer": "hello "} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := options(t)
			s := open(t, o)
			d, err := s.Put(t.Context(), []byte("hello"))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path(o, d), []byte(rotten), 0o600); err != nil {
				t.Fatal(err)
			}
			if b, err := s.Get(t.Context(), d); !errors.Is(err, blob.ErrCorrupt) {
				t.Errorf("get = %q, %v, want ErrCorrupt", b, err)
			}
			// A put of the same bytes repairs it.
			if _, err := s.Put(t.Context(), []byte("hello")); err != nil {
				t.Fatal(err)
			}
			if b, err := s.Get(t.Context(), d); err != nil || string(b) != "hello" {
				t.Errorf("get after another put = %q, %v", b, err)
			}
		})
	}
}

func TestOpenRefusesWhatIsNotThere(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*s3.Options){
		"a bucket":          func(o *s3.Options) { o.Bucket = "nowhere" },
		"a secret":          func(o *s3.Options) { o.SecretKey = "guessed" },
		"no URL":            func(o *s3.Options) { o.Endpoint = "127.0.0.1:1" },
		"a URL with a path": func(o *s3.Options) { o.Endpoint += "/path" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := options(t)
			change(&o)
			_, err := s3.Open(t.Context(), o)
			if err == nil {
				t.Fatal("it was opened")
			}
			if strings.Contains(err.Error(), s3server.SecretKey) || strings.Contains(err.Error(), "guessed") {
				t.Errorf("the error tells the secret: %v", err)
			}
		})
	}
}
