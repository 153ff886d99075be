// Package snapshot stores the layers that snapshots of workspaces consist of.
//
// A chain is a list of layers, each applied over those before it. A layer is stored
// twice: packed, as a blob, which is durable; and as a directory that can be mounted as it
// is, which is a cache that may be lost at any time. Several Stores, in this process or
// others, may share a directory. DESIGN.md has the invariants.
package snapshot

import (
	"log/slog"
	"time"

	"github.com/dormouse-run/dormouse/blob"
	"github.com/dormouse-run/dormouse/snapshot/layer"
)

// Options says where and how layers are stored.
type Options struct {
	// Dir holds the unpacked directories and what is recorded about them.
	Dir string
	// Blobs stores the packed layers.
	Blobs blob.Store
	// Limits bounds each layer. Zero is two million entries, 64 GiB and
	// 64 MiB of paths.
	Limits layer.Limits
	// Idle is how long a directory that nothing uses or refers to stays. Zero is an hour.
	Idle time.Duration
	Log  *slog.Logger
}

const (
	defaultEntries = 2_000_000
	defaultBytes   = 64 << 30
	defaultIdle    = time.Hour
)

// withDefaults replaces zero values.
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

// MaxMounted is how many directories a workspace is mounted from at most.
const MaxMounted = 64

// Meta describes an exported image.
type Meta struct {
	// Name is the tag that it is loaded under; empty for none.
	Name    string
	Created time.Time
	Labels  map[string]string
}
