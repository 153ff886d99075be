// Package snapshot keeps what workspaces were like.
//
// A workspace line is a list of layers, each what to put over those before it. A
// layer is kept twice: packed, as a blob, which is what lasts; and as a directory
// that can be mounted as it is, which is a cache that can be lost at any time. A
// Store may share its directory with others, in this process or another.
package snapshot

import (
	"log/slog"
	"time"

	"github.com/dormouse-run/dormouse/blob"
	"github.com/dormouse-run/dormouse/snapshot/layer"
)

// Options says where and how layers are kept.
type Options struct {
	// Dir is where the directories are.
	Dir string
	// Blobs has the packed layers.
	Blobs blob.Store
	// Limits bounds each layer. Zero is two million entries, 64 GiB and
	// 64 MiB of paths.
	Limits layer.Limits
	// Idle is how long a directory stays that nobody uses or names. Zero is an hour.
	Idle time.Duration
	Log  *slog.Logger
}

const (
	defaultEntries = 2_000_000
	defaultBytes   = 64 << 30
	defaultIdle    = time.Hour
)

// withDefaults fills in what was left open.
func (o Options) withDefaults() Options {
	if o.Limits.Entries == 0 {
		o.Limits.Entries = defaultEntries
	}
	if o.Limits.Bytes == 0 {
		o.Limits.Bytes = defaultBytes
	}
	o.Limits.Paths = o.Limits.MaxPaths()
	if o.Idle == 0 {
		o.Idle = defaultIdle
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// MaxMounted is how many directories a workspace is made of at most.
const MaxMounted = 64

// Meta is what an exported image says of itself.
type Meta struct {
	// Name is what it is called where it is loaded; empty for no name.
	Name    string
	Created time.Time
	Labels  map[string]string
}
