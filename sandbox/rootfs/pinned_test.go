//go:build linux

package rootfs_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse/sandbox/rootfs"
	"github.com/dormouse-run/dormouse/snapshot/layer/layertest"
)

func TestAPinnedImageIsTheSameWhereverItsTagLeads(t *testing.T) {
	reg, s := newRegistry(t), openStore(t, rootfs.Options{})
	first, second := oneFile(t, "first"), oneFile(t, "second")
	reg.push(":1", first)
	if _, err := s.Root(t.Context(), reg.ref(":1"), nil); err != nil {
		t.Fatal(err)
	}
	reg.push(":1", second)
	for name, s := range map[string]*rootfs.Store{"the one that has it": s, "another one": openStore(t, rootfs.Options{})} {
		r, err := s.Pinned(t.Context(), reg.ref(":1"), digestOf(t, first), nil)
		if err != nil || r.Digest != digestOf(t, first) {
			t.Fatalf("%s: %+v, %v", name, r, err)
		}
		layertest.WantTree(t, r.Dir, "file = first")
	}
}

func TestAPinnedImageThatIsGoneIsNotReplacedByAnother(t *testing.T) {
	now := saveTarball(t, oneFile(t, "second"))
	digest := digestOf(t, oneFile(t, "first"))
	if r, err := openStore(t, rootfs.Options{}).Pinned(t.Context(), "tarball:"+now, digest, nil); err == nil || !strings.Contains(err.Error(), "the other is not here any more") {
		t.Errorf("got %+v, %v", r, err)
	}
	for _, bad := range []string{"sha256:x", "../../etc", ""} {
		if _, err := openStore(t, rootfs.Options{}).Pinned(t.Context(), "tarball:"+now, bad, nil); err == nil {
			t.Errorf("%q is taken for a digest", bad)
		}
	}
}

func TestWhatOnlyGuestsNameIsDialledForThemAndAskedAsNobody(t *testing.T) {
	reg := newRegistry(t)
	reg.push(":1", oneFile(t, "text"))
	home := t.TempDir()
	t.Setenv("DOCKER_CONFIG", home)
	text := fmt.Sprintf(`{"auths": {%q: {"auth": %q}}}`, reg.host, base64.StdEncoding.EncodeToString([]byte("mouse:acorn")))
	if err := os.WriteFile(filepath.Join(home, "config.json"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	reg.block(func(_ http.ResponseWriter, q *http.Request) bool {
		if q.Header.Get("Authorization") != "" {
			t.Errorf("%s is asked for with a credential", q.URL)
		}
		return false
	})
	var dialled []string
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		dialled = append(dialled, address)
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	r, err := openStore(t, rootfs.Options{Dial: dial}).Root(t.Context(), reg.ref(":1"), nil)
	if err != nil {
		t.Fatal(err)
	}
	layertest.WantTree(t, r.Dir, "file = text")
	if len(dialled) == 0 || dialled[0] != reg.host {
		t.Errorf("dialled %v", dialled)
	}
	refuse := func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("it is a loopback address")
	}
	wantRefused(t, rootfs.Options{Dial: refuse}, reg.ref(":1"), "loopback")
}

func TestOnlySoManyImagesAreUnpackedAtOnce(t *testing.T) {
	const most, all = 4, 12
	reg, s := newRegistry(t), openStore(t, rootfs.Options{})
	configs := make(map[string]bool)
	for i := range all {
		im := oneFile(t, strconv.Itoa(i))
		reg.push(":"+strconv.Itoa(i), im)
		configs[must(im.ConfigName()).Hex] = true
	}
	var now, peak atomic.Int32
	reg.block(func(_ http.ResponseWriter, q *http.Request) bool {
		_, digest, layer := strings.Cut(q.URL.Path, "/blobs/sha256:")
		if layer && !configs[digest] {
			n := now.Add(1)
			for old := peak.Load(); n > old && !peak.CompareAndSwap(old, n); old = peak.Load() {
			}
			time.Sleep(20 * time.Millisecond) // so that the others come by
			now.Add(-1)
		}
		return false
	})
	var pulls sync.WaitGroup
	for i := range all {
		pulls.Go(func() {
			if _, err := s.Root(t.Context(), reg.ref(":"+strconv.Itoa(i)), nil); err != nil {
				t.Error(err)
			}
		})
	}
	pulls.Wait()
	if got := peak.Load(); got == 0 || got > most {
		t.Errorf("%d were unpacked at once, at most %d should be", got, most)
	}
}
