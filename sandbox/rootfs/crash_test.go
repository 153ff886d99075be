//go:build linux

package rootfs_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/dormouse-run/dormouse/sandbox/rootfs"
	"github.com/dormouse-run/dormouse/snapshot/layer/layertest"
)

// Told to by these, the test binary is another process that gets an image.
const (
	childDir = "DORMOUSE_ROOTFS_DIR"
	childRef = "DORMOUSE_ROOTFS_REF"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		s, err := rootfs.Open(rootfs.Options{Dir: dir})
		if err == nil {
			_, err = s.Root(context.Background(), os.Getenv(childRef), func(p rootfs.Progress) { fmt.Println("layer", p.Layer) })
		}
		fmt.Println("done", err)
		return
	}
	os.Exit(m.Run())
}

func TestAKilledPullLeavesNothingThatMatters(t *testing.T) {
	reg, dir := newRegistry(t), t.TempDir()
	first, second := layertest.NewTar(t).File("a", "a").Bytes(), layertest.NewTar(t).File("b", "b").Bytes()
	im := imageOf(t, v1.Config{}, gzipped(t, first), gzipped(t, second))
	reg.push(":1", im)
	last := must(im.Manifest()).Layers[1].Digest.Hex
	arrived := make(chan struct{}, 10)
	reg.block(func(_ http.ResponseWriter, q *http.Request) bool {
		if !strings.Contains(q.URL.Path, last) {
			return false
		}
		arrived <- struct{}{}
		<-q.Context().Done()
		return true
	})
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childDir+"="+dir, childRef+"="+reg.ref(":1"))
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() && lines.Text() != "layer 2" {
		t.Log(lines.Text())
	}
	<-arrived
	unfinished := func() bool {
		return slices.ContainsFunc(must(os.ReadDir(dir)), func(e os.DirEntry) bool { return strings.HasPrefix(e.Name(), ".new-") })
	}
	openStore(t, rootfs.Options{Dir: dir})
	if !unfinished() {
		t.Error("what a living process makes was removed")
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait()
	if !unfinished() {
		t.Error("a killed process left nothing: it was killed too late")
	}
	s := openStore(t, rootfs.Options{Dir: dir})
	if got := layertest.List(t, dir); !slices.Equal(got, []string{"refs/"}) {
		t.Errorf("what is left = %v, want nothing", got)
	}
	reg.block(func(http.ResponseWriter, *http.Request) bool { return false })
	r, err := s.Root(t.Context(), reg.ref(":1"), nil)
	if err != nil {
		t.Fatal(err)
	}
	layertest.WantTree(t, r.Dir, "a = a\nb = b")
}
