package rest_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dormouse-run/dormouse"
)

// rooms is a driver whose sandboxes differ, within limits.
type rooms struct{ *boxes }

var most = dormouse.Limits{CPUs: 2, Memory: 1 << 30, Pids: 100, Disk: 1 << 30, Inodes: 1 << 20, Files: 1024}

func (rooms) ResolveEnvironment(e dormouse.Environment) (dormouse.Environment, error) {
	if err := e.Limits.Within(most); err != nil {
		return e, err
	}
	if e.Image == "" {
		e.Image = dormouse.HostImage
	}
	if e.Network == "" {
		e.Network = dormouse.NetworkOn
	}
	e.Limits = e.Limits.Or(most)
	return e, nil
}

func TestAnEnvironmentIsAskedForAndShown(t *testing.T) {
	h := newServerOn(t, rooms{new(boxes)})
	got := h.show(h.create(`{"warm":false}`)).Environment
	if diff := cmp.Diff(dormouse.Environment{Image: dormouse.HostImage, Network: dormouse.NetworkOn, Limits: most}, got); diff != "" {
		t.Errorf("the usual one (-want +got):\n%s", diff)
	}
	parent := h.create(`{"warm":false,"environment":{"image":"debian:12","network":"off","limits":{"cpus":0.5,"memory":536870912}}}`)
	want := dormouse.Environment{Image: "debian:12", Network: dormouse.NetworkOff, Limits: dormouse.Limits{CPUs: 0.5, Memory: 1 << 29}.Or(most)}
	if diff := cmp.Diff(want, h.show(parent).Environment); diff != "" {
		t.Errorf("one of its own (-want +got):\n%s", diff)
	}
	id := strings.TrimPrefix(parent, "/api/sessions/")
	child := h.create(fmt.Sprintf(`{"parent":%q,"warm":false}`, id))
	if diff := cmp.Diff(want, h.show(child).Environment); diff != "" {
		t.Errorf("that of a child (-want +got):\n%s", diff)
	}
	for body, says := range map[string]string{
		`{"environment":{"limits":{"memory":2147483648}}}`:                           "environment: limits.memory is 2147483648; this server gives at most 1073741824",
		`{"environment":{"limits":{"pids":-1}}}`:                                     "environment: limits.pids cannot be -1",
		fmt.Sprintf(`{"parent":%q,"warm":false,"environment":{"network":"on"}}`, id): "a child has the environment of its parent",
	} {
		h.refuses(h.request(http.MethodPost, "/api/sessions", strings.NewReader(body)), http.StatusBadRequest, says)
	}
}
