package sandboxtest

import (
	"errors"
	"testing"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/sandbox"
)

// resolver skips drivers whose sandboxes cannot differ.
func (w *world) resolver(t *testing.T) sandbox.EnvironmentResolver {
	t.Helper()
	f, ok := w.Driver.(sandbox.EnvironmentResolver)
	if !ok {
		t.Skip("its sandboxes are all alike")
	}
	return f
}

func resolvingCompletes(t *testing.T, w *world) {
	f := w.resolver(t)
	whole, err := f.ResolveEnvironment(dormouse.Environment{})
	if err != nil {
		t.Fatal(err)
	}
	if err := whole.Validate(); err != nil {
		t.Error(err)
	}
	if whole.Image == "" || whole.Network == "" {
		t.Errorf("left open: %+v", whole)
	}
	others := dormouse.Limits{CPUs: 1, Memory: 1, Pids: 1, Disk: 1, Inodes: 1, Files: 1}
	if whole.Limits.Or(others) != whole.Limits {
		t.Errorf("left open: %+v", whole.Limits)
	}
}

func resolvingRefuses(t *testing.T, w *world) {
	f := w.resolver(t)
	for name, e := range map[string]dormouse.Environment{
		"files of the host":     {Image: "dir:/etc"},
		"a file of the host":    {Image: "tarball:/etc/passwd"},
		"no limit on memory":    {Limits: dormouse.Limits{Memory: dormouse.Unlimited}},
		"no limit on processes": {Limits: dormouse.Limits{Pids: dormouse.Unlimited}},
	} {
		if got, err := f.ResolveEnvironment(e); !errors.Is(err, dormouse.ErrInvalid) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func imageStays(t *testing.T, w *world) {
	f := w.resolver(t)
	e, err := f.ResolveEnvironment(dormouse.Environment{})
	if err != nil {
		t.Fatal(err)
	}
	var first string
	for generation := uint64(1); generation <= 2; generation++ {
		s, err := w.Driver.Create(within(t), sandbox.Spec{Fence: w.fence(generation, 1), Environment: e, Image: first})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		w.sh(t, s, "echo x >>file")
		image, ok := s.(sandbox.FromImage)
		if !ok {
			t.Fatal("it does not say its image")
		}
		if generation == 2 && image.ImageDigest() != first {
			t.Errorf("it is of %q, and the one before of %q", image.ImageDigest(), first)
		}
		first = image.ImageDigest()
		if err := w.Driver.Stop(within(t), s.Handle(), Newest(s.Handle())); err != nil {
			t.Fatal(err)
		}
	}
}
