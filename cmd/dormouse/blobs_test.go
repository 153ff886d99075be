package main

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dormouse-run/dormouse/internal/s3server"
	"github.com/dormouse-run/dormouse/store/transfer/transfertest"
)

// startBucket starts an S3 server for one test and returns a place in it.
func startBucket(t *testing.T) (*s3server.Server, bucket) {
	t.Helper()
	s, err := s3server.Start(t.Context(), "dormouse")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Setenv("AWS_ACCESS_KEY_ID", s3server.AccessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", s3server.SecretKey)
	t.Setenv("AWS_REGION", s3server.Region)
	return s, bucket{URL: "s3://dormouse/some/where", Endpoint: s.URL()}
}

// filesUnder counts the files under a directory.
func filesUnder(t *testing.T, dir string) int {
	t.Helper()
	n := 0
	err := filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			n++
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestADeploymentKeepsItsBlobsInABucket(t *testing.T) {
	server, at := startBucket(t)
	old, data, file := transfertest.OldData(t), t.TempDir(), filepath.Join(t.TempDir(), "archive")
	flags := []string{"--blobs", at.URL, "--s3-endpoint", at.Endpoint}
	digest := func(data string, flags ...string) string {
		t.Helper()
		out, _ := storeCommand(t, 0, data, append([]string{"export", file, "--json"}, flags...)...)
		var e exported
		if err := json.Unmarshal([]byte(out), &e); err != nil {
			t.Fatal(err)
		}
		if e.Blobs != 4 || e.Lost != 0 {
			t.Errorf("exported %d blobs, %d lost", e.Blobs, e.Lost)
		}
		return string(e.Digest)
	}
	before := digest(old)
	storeCommand(t, 0, data, append([]string{"import", file}, flags...)...)
	if n := filesUnder(t, server.Path("dormouse", "some/where/sha256")); n != 4 {
		t.Errorf("the bucket has %d blobs, want 4", n)
	}
	if after := digest(data, flags...); after != before {
		t.Errorf("what was carried over exports to %s, want %s", after, before)
	}

	config := `{"blobs":"` + at.URL + `","s3_endpoint":"` + at.Endpoint + `"}`
	if err := os.WriteFile(filepath.Join(data, "config.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	if after := digest(data); after != before { // as the file says
		t.Errorf("what was carried over exports to %s, want %s", after, before)
	}
	s := startServer(t, data, withBlobs(at))
	eventually(t, "the large prompt that was queued has run", func() bool {
		return strings.Count(must(t, data, "session", "events", string(transfertest.Large)), "session.status_idle") == 2
	})
	if err := s.stop(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(data, "blobs", "sha256")); err == nil {
		t.Error("the data directory has blobs too")
	}
}

func withBlobs(at bucket) func(*config) { return func(c *config) { c.Blobs = at } }

// Sessions would think their payloads lost.
func TestBlobsAreNotLookedForInAnotherPlace(t *testing.T) {
	_, at := startBucket(t)
	old, file := transfertest.OldData(t), filepath.Join(t.TempDir(), "archive")
	flags := []string{"--blobs", at.URL, "--s3-endpoint", at.Endpoint}
	_, errs := storeCommand(t, exitUsage, old, append([]string{"export", file}, flags...)...)
	if !strings.Contains(errs, "store export") {
		t.Errorf("it does not say how to move: %s", errs)
	}
	storeCommand(t, 0, old, "export", file)

	data := t.TempDir()
	storeCommand(t, 0, data, append([]string{"import", file}, flags...)...)
	storeCommand(t, 0, data, "rebuild", "--check", "--blobs", at.URL+"/", "--s3-endpoint", at.Endpoint)
	for _, other := range [][]string{{}, {"--blobs", "s3://dormouse/else/where", "--s3-endpoint", at.Endpoint}} {
		_, errs := storeCommand(t, exitUsage, data, append([]string{"rebuild", "--check"}, other...)...)
		if !strings.Contains(errs, "--blobs "+at.URL) {
			t.Errorf("it does not say where they are: %s", errs)
		}
	}
	fresh := t.TempDir() // has none yet
	for _, at := range []bucket{{}, at} {
		b, err := openBlobs(t.Context(), fresh, at)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Without its blobs a server would take what sessions need for lost.
func TestAServerDoesNotStartWithoutTheDiskOfItsBlobs(t *testing.T) {
	data := t.TempDir()
	open := func() error {
		s, err := openBlobs(t.Context(), data, bucket{})
		if err == nil {
			err = s.Close()
		}
		return err
	}
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ok(open())
	ok(open())
	home := filepath.Join(data, blobDir)
	ok(os.Rename(home, home+".unmounted"))
	for _, made := range []string{home, filepath.Join(home, "lost+found")} {
		ok(os.MkdirAll(made, 0o700))
		if err := open(); err == nil || !strings.Contains(err.Error(), "mount what belongs there") {
			t.Fatalf("with an empty %s: %v", home, err)
		}
	}
	ok(os.Remove(filepath.Join(data, madeFile)))
	ok(open()) // as it was told
}

func TestDoctorTriesTheBucket(t *testing.T) {
	server, at := startBucket(t)
	look := func() finding {
		t.Helper()
		out, errs, _ := runIn(t.Context(), "", "--data", t.TempDir(), "doctor", "--json", "--listen", "127.0.0.1:0", "--blobs", at.URL, "--s3-endpoint", at.Endpoint)
		var report struct {
			Checks []finding `json:"checks"`
		}
		if err := json.Unmarshal([]byte(out), &report); err != nil {
			t.Fatalf("%v: %s%s", err, out, errs)
		}
		for _, secret := range []string{s3server.SecretKey, "guessed"} {
			if strings.Contains(out+errs, secret) {
				t.Errorf("the secret is printed: %s%s", out, errs)
			}
		}
		for _, f := range report.Checks {
			if f.Check == "blobs" {
				return f
			}
		}
		t.Fatalf("blobs were not looked at: %s", out)
		return finding{}
	}
	if f := look(); !f.OK || !strings.Contains(f.Detail, at.URL) {
		t.Errorf("%+v", f)
	}
	if n := filesUnder(t, server.Path("dormouse", "")); n != 0 {
		t.Errorf("%d objects are left", n)
	}
	t.Setenv("AWS_SECRET_ACCESS_KEY", "guessed")
	if f := look(); f.OK {
		t.Errorf("%+v", f)
	}
}

func TestABucketIsSaidRight(t *testing.T) {
	for _, args := range [][]string{
		{"--blobs", "bucket"},
		{"--blobs", "https://bucket/prefix"},
		{"--blobs", "s3:///prefix"},
		{"--blobs", "s3://key:secret@bucket/prefix"},
		{"--blobs", "s3://bucket?secret=secret"},
		{"--blobs", "s3://bucket", "--s3-endpoint", "s3.example.com"},
		{"--blobs", "s3://bucket", "--s3-endpoint", "https://key:secret@s3.example.com"},
		{"--s3-endpoint", "https://s3.example.com"},
		{"--s3-region", "eu-north-1"},
	} {
		for _, command := range [][]string{{"serve"}, {"doctor"}, {"store", "rebuild"}} {
			_, errs, code := runIn(t.Context(), "", append(append([]string{"--data", t.TempDir()}, command...), args...)...)
			if code != exitUsage || strings.Contains(errs, "secret") {
				t.Errorf("%v %v: exit %d: %s", command, args, code, errs)
			}
		}
	}
}
