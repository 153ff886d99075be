//go:build linux

package rootfs_test

import (
	"archive/tar"
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/dormouse-run/dormouse/sandbox/rootfs"
	"github.com/dormouse-run/dormouse/snapshot/layer/layertest"
)

// testRegistry is a registry on loopback. What stands in its way is asked first.
type testRegistry struct {
	t     testing.TB
	host  string
	auth  authn.Authenticator
	asked atomic.Int32 // for manifests
	inWay atomic.Pointer[func(http.ResponseWriter, *http.Request) bool]
}

func newRegistry(t testing.TB) *testRegistry {
	t.Helper()
	r := &testRegistry{t: t, auth: authn.Anonymous}
	images := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.Method == http.MethodGet && strings.Contains(q.URL.Path, "/manifests/") {
			r.asked.Add(1)
		}
		if f := r.inWay.Load(); f != nil && (*f)(w, q) {
			return
		}
		images.ServeHTTP(w, q)
	}))
	t.Cleanup(server.Close)
	r.host = strings.TrimPrefix(server.URL, "http://")
	return r
}

// block puts something in the way. It answers the requests for which it returns
// true.
func (r *testRegistry) block(f func(http.ResponseWriter, *http.Request) bool) { r.inWay.Store(&f) }

func (r *testRegistry) ref(tag string) string { return r.host + "/made/image" + tag }

func (r *testRegistry) push(tag string, what remote.Taggable) {
	r.t.Helper()
	ref, err := name.ParseReference(r.ref(tag))
	if err != nil {
		r.t.Fatal(err)
	}
	switch w := what.(type) {
	case v1.Image:
		err = remote.Write(ref, w, remote.WithAuth(r.auth))
	case v1.ImageIndex:
		err = remote.WriteIndex(ref, w, remote.WithAuth(r.auth))
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

func oneFile(t testing.TB, text string) v1.Image {
	return imageOf(t, v1.Config{}, gzipped(t, layertest.NewTar(t).File("file", text).Bytes()))
}

func TestAnImageIsPulledOnce(t *testing.T) {
	reg, s := newRegistry(t), openStore(t, rootfs.Options{})
	im, err := random.Image(1<<20, 3)
	if err != nil {
		t.Fatal(err)
	}
	reg.push(":1", im)
	byTag, err := s.Root(t.Context(), reg.ref(":1"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if names := layertest.List(t, byTag.Dir); len(names) != 3 {
		t.Errorf("files = %d, want one of each layer", len(names))
	}
	reg.block(func(w http.ResponseWriter, q *http.Request) bool {
		if strings.Contains(q.URL.Path, "/blobs/sha256:") && !strings.Contains(q.URL.Path, must(im.ConfigName()).Hex) {
			t.Errorf("asked once more for %s", q.URL.Path)
		}
		return false
	})
	byDigest, err := s.Root(t.Context(), reg.ref("@"+digestOf(t, im)), func(rootfs.Progress) { t.Error("it was unpacked once more") })
	if err != nil || byDigest.Dir != byTag.Dir || byDigest.Digest != digestOf(t, im) {
		t.Errorf("by digest = %+v, %v, want %+v", byDigest, err, byTag)
	}
	asked := reg.asked.Load()
	for _, ref := range []string{reg.ref("@" + digestOf(t, im)), reg.ref(":1")} {
		if _, err := s.Root(t.Context(), ref, nil); err != nil {
			t.Error(err)
		}
	}
	if got := reg.asked.Load(); got != asked {
		t.Errorf("the registry was asked %d times for what is known", got-asked)
	}
}

func TestAnIndexLeadsToTheImageForThisMachine(t *testing.T) {
	reg, s := newRegistry(t), openStore(t, rootfs.Options{})
	ours, theirs := oneFile(t, "ours"), oneFile(t, "theirs")
	index := mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: theirs, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "pdp11"}}},
		mutate.IndexAddendum{Add: ours, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: runtime.GOARCH}}})
	reg.push(":1", index)
	for _, ref := range []string{reg.ref(":1"), reg.ref("@" + must(index.Digest()).String())} {
		r, err := s.Root(t.Context(), ref, nil)
		if err != nil {
			t.Fatal(err)
		}
		if r.Digest != digestOf(t, ours) {
			t.Errorf("digest = %s, want that of the image", r.Digest)
		}
		layertest.WantTree(t, r.Dir, "file = ours")
	}
}

func TestATagIsLookedUpNowAndThen(t *testing.T) {
	reg, s := newRegistry(t), openStore(t, rootfs.Options{})
	now := time.Now()
	s.SetClock(func() time.Time { return now })
	want := func(text string, get func() (rootfs.Root, error)) {
		t.Helper()
		r, err := get()
		if err != nil {
			t.Fatal(err)
		}
		layertest.WantTree(t, r.Dir, "file = "+text)
	}
	root := func() (rootfs.Root, error) { return s.Root(t.Context(), reg.ref(":1"), nil) }
	refresh := func() (rootfs.Root, error) { return s.Refresh(t.Context(), reg.ref(":1"), nil) }
	reg.push(":1", oneFile(t, "first"))
	want("first", root)
	reg.push(":1", oneFile(t, "second"))
	now = now.Add(4 * time.Minute)
	want("first", root)
	now = now.Add(2 * time.Minute)
	want("second", root)
	reg.push(":1", oneFile(t, "third"))
	want("second", root)
	want("third", refresh)
	want("third", root)
	reg.push(":1", oneFile(t, "fourth"))
	now = now.Add(-time.Hour)
	want("fourth", root) // a clock that went back is no reason to wait an hour
}

func TestARegistryThatFailsIsWorkedAround(t *testing.T) {
	var lines bytes.Buffer
	reg, s := newRegistry(t), openStore(t, rootfs.Options{Logger: logTo(&lines)})
	now := time.Now()
	s.SetClock(func() time.Time { return now })
	reg.push(":1", oneFile(t, "first"))
	if _, err := s.Root(t.Context(), reg.ref(":1"), nil); err != nil {
		t.Fatal(err)
	}
	reg.push(":1", oneFile(t, "second"))
	for what, path := range map[string]string{"manifests": "/manifests/", "layers": "/blobs/"} {
		t.Run(what, func(t *testing.T) {
			lines.Reset()
			reg.block(func(w http.ResponseWriter, q *http.Request) bool {
				if !strings.Contains(q.URL.Path, path) {
					return false
				}
				w.WriteHeader(http.StatusNotFound)
				return true
			})
			now = now.Add(time.Hour)
			asked := reg.asked.Load()
			for range 3 {
				r, err := s.Root(t.Context(), reg.ref(":1"), nil)
				if err != nil {
					t.Fatal(err)
				}
				layertest.WantTree(t, r.Dir, "file = first")
			}
			if got := reg.asked.Load() - asked; got != 1 {
				t.Errorf("the registry was asked %d times, want one", got)
			}
			if got := lines.String(); strings.Count(got, "level=WARN") != 1 || !strings.Contains(got, "using the one before") {
				t.Errorf("log = %q, want one warning", got)
			}
			if r, err := s.Refresh(t.Context(), reg.ref(":1"), nil); err == nil {
				t.Errorf("refresh = %+v, want an error", r)
			}
			if r, err := s.Root(t.Context(), reg.ref(":never"), nil); err == nil {
				t.Errorf("another tag = %+v, want an error", r)
			}
		})
	}
}

func TestARegistryCannotLie(t *testing.T) {
	reg := newRegistry(t)
	im, other := oneFile(t, "asked for"), oneFile(t, "something else")
	reg.push(":1", im)
	m := must(im.Manifest())
	otherLayer := must(io.ReadAll(must(must(other.Layers())[0].Compressed())))
	for _, test := range []struct {
		name, path string
		answer     []byte
		ref, err   string
	}{
		{"another manifest", "/manifests/", must(other.RawManifest()), "@" + digestOf(t, im), "does not match requested digest"},
		{"another configuration", m.Config.Digest.Hex, must(other.RawConfigFile()), ":1", "configuration"},
		{"another layer", m.Layers[0].Digest.Hex, otherLayer, ":1", "layer 1"},
		{"half a layer", m.Layers[0].Digest.Hex, otherLayer[:20], ":1", "layer 1"},
		{"an old manifest", "/manifests/", []byte(`{"schemaVersion": 1}`), ":1", "no image"},
		{"a vast configuration", "/manifests/", vastConfig(t, m), ":1", "configuration has"},
		{"no JSON", "/manifests/", []byte("<html>"), ":1", "manifest"},
	} {
		t.Run(test.name, func(t *testing.T) {
			reg.block(func(w http.ResponseWriter, q *http.Request) bool {
				if !strings.Contains(q.URL.Path, test.path) {
					return false
				}
				w.Header().Set("Content-Type", string(m.MediaType))
				_, _ = w.Write(test.answer)
				return true
			})
			wantRefused(t, rootfs.Options{}, reg.ref(test.ref), test.err)
		})
	}
}

func vastConfig(t *testing.T, m *v1.Manifest) []byte {
	t.Helper()
	return fmt.Appendf(nil, `{"schemaVersion": 2, "mediaType": %q, "config": {"mediaType": %q, "size": 1099511627776, "digest": %q}, "layers": []}`,
		m.MediaType, m.Config.MediaType, m.Config.Digest)
}

func TestARegistryThatStopsSendingIsAbandoned(t *testing.T) {
	reg, dir := newRegistry(t), t.TempDir()
	s := openStore(t, rootfs.Options{Dir: dir})
	s.SetStall(200 * time.Millisecond)
	im := oneFile(t, "text")
	reg.push(":1", im)
	l := must(im.Manifest()).Layers[0]
	reg.block(func(w http.ResponseWriter, q *http.Request) bool {
		if !strings.Contains(q.URL.Path, l.Digest.Hex) {
			return false
		}
		w.Header().Set("Content-Length", fmt.Sprint(l.Size))
		_, _ = w.Write([]byte{0x1f})
		_ = http.NewResponseController(w).Flush()
		<-q.Context().Done()
		return true
	})
	_, err := s.Root(t.Context(), reg.ref(":1"), nil)
	if err == nil || !strings.Contains(err.Error(), "sends nothing any more") {
		t.Errorf("error = %v, want that nothing came", err)
	}
	if got := layertest.List(t, dir); len(got) != 1 {
		t.Errorf("what is left = %v, want nothing", got)
	}
}

func TestTheDockerConfigurationSaysAsWhom(t *testing.T) {
	reg := newRegistry(t)
	reg.block(func(w http.ResponseWriter, q *http.Request) bool {
		if user, password, _ := q.BasicAuth(); user == "mouse" && password == "acorn" {
			return false
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
		w.WriteHeader(http.StatusUnauthorized)
		return true
	})
	reg.auth = &authn.Basic{Username: "mouse", Password: "acorn"}
	reg.push(":1", oneFile(t, "text"))
	home := t.TempDir()
	t.Setenv("DOCKER_CONFIG", home)
	wantRefused(t, rootfs.Options{}, reg.ref(":1"), "Unauthorized")
	text := fmt.Sprintf(`{"auths": {%q: {"auth": %q}}}`, reg.host, base64.StdEncoding.EncodeToString([]byte("mouse:acorn")))
	if err := os.WriteFile(filepath.Join(home, "config.json"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := openStore(t, rootfs.Options{}).Root(t.Context(), reg.ref(":1"), nil)
	if err != nil {
		t.Fatal(err)
	}
	layertest.WantTree(t, r.Dir, "file = text")
}

func TestCollectForgetsTags(t *testing.T) {
	reg, s := newRegistry(t), openStore(t, rootfs.Options{})
	now := time.Now()
	s.SetClock(func() time.Time { return now })
	reg.push(":1", oneFile(t, "text"))
	first, err := s.Root(t.Context(), reg.ref(":1"), nil)
	if err != nil {
		t.Fatal(err)
	}
	now = now.Add(2 * time.Hour)
	if err := s.Collect(t.Context(), func(string) bool { return false }); err != nil {
		t.Fatal(err)
	}
	if got := layertest.List(t, filepath.Dir(filepath.Dir(first.Dir))); len(got) != 1 {
		t.Errorf("what is left = %v, want nothing", got)
	}
	if r, err := s.Root(t.Context(), reg.ref(":1"), nil); err != nil || r.Dir != first.Dir {
		t.Errorf("the image again = %+v, %v", r, err)
	}
}

// TestAProgramRunsInItsImage makes an image of one static program, and runs it
// with nothing but that image as its root.
func TestAProgramRunsInItsImage(t *testing.T) {
	program := filepath.Join(t.TempDir(), "hello")
	build := exec.Command("go", "build", "-o", program, "./testdata/hello")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	text := string(must(os.ReadFile(program)))
	h := tar.Header{Typeflag: tar.TypeReg, Name: "usr/bin/hello", Mode: 0o755, Size: int64(len(text))}
	reg := newRegistry(t)
	reg.push(":1", imageOf(t, v1.Config{Env: []string{"NAME=dormouse"}, Cmd: []string{"/bin/hello"}, User: "1000"},
		gzipped(t, layertest.NewTar(t).Put(h, text).Add(layertest.Symlink("bin", "usr/bin")).Bytes()),
		gzipped(t, layertest.NewTar(t).File("etc/greeting", "good night").Bytes())))
	r, err := openStore(t, rootfs.Options{}).Root(t.Context(), reg.ref(":1"), nil)
	if err != nil {
		t.Fatal(err)
	}
	run := exec.Command(r.Cmd[0])
	run.Dir, run.Env = "/", r.Env
	run.SysProcAttr = &syscall.SysProcAttr{Chroot: r.Dir}
	if out, err := run.CombinedOutput(); err != nil || string(out) != "good night, dormouse\n" {
		t.Errorf("hello = %q, %v", out, err)
	}
}
