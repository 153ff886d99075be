//go:build linux

package rootfs

import (
	"path"
	"strings"

	"github.com/dormouse-run/dormouse/internal/imagefile"
)

// image is an image in a registry or in files.
type image struct {
	*imagefile.Image
	// abandon ends all reading. It is nil where reading cannot block for ever.
	abandon func()
}

// root is what the configuration says.
func (im *image) root() Root {
	c := im.Config.Config
	r := Root{Digest: im.Digest.String(), User: c.User, Entrypoint: c.Entrypoint, Cmd: c.Cmd}
	for _, v := range c.Env {
		if name, _, ok := strings.Cut(v, "="); ok && name != "" && !strings.Contains(v, "\x00") {
			r.Env = append(r.Env, v)
		}
	}
	if c.WorkingDir != "" && !strings.Contains(c.WorkingDir, "\x00") {
		r.Workdir = path.Join("/", c.WorkingDir)
	}
	return r
}
