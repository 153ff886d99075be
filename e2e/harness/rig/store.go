package rig

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/dormouse-run/dormouse/internal/pgserver"
)

// Store is where servers keep their sessions. The zero Store is the file in the
// data directory, which no two servers share.
type Store struct {
	URL string
	// Lease is how long its servers live for each other without a sign.
	Lease time.Duration
}

// Shared reports whether several servers may use it at once.
func (s Store) Shared() bool { return s.URL != "" }

// flag says which store, to any command.
func (s Store) flag() []string {
	if !s.Shared() {
		return nil
	}
	return []string{"--store", s.URL}
}

// flags is how a store is served.
func (s Store) flags() []string {
	if !s.Shared() {
		return nil
	}
	return append(s.flag(), "--lease", s.Lease.String())
}

// Stores makes stores of one kind, as many as are asked for.
type Stores struct {
	lease time.Duration

	mu   sync.Mutex       // one at a time: databases are copied from one template
	pg   *pgserver.Server // guarded by mu; nil if each is a file
	made int              // guarded by mu
}

// NewStores readies stores called sqlite or postgres. Servers that share one
// have leases of the given length.
func NewStores(ctx context.Context, kind string, lease time.Duration) (*Stores, error) {
	s := &Stores{lease: lease}
	switch kind {
	case "", "sqlite":
		return s, nil
	case "postgres":
		// What a killed process wrote is with the kernel; there is no power cut here.
		var err error
		s.pg, err = pgserver.Start(ctx, "fsync=off", "full_page_writes=off", "max_connections=300", "autovacuum=off")
		return s, err
	}
	return nil, fmt.Errorf("there is no store %q; there are sqlite and postgres", kind)
}

// Shared reports whether several servers may use one.
func (s *Stores) Shared() bool { return s.pg != nil }

// Close removes everything that was made.
func (s *Stores) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pg == nil {
		return nil
	}
	return s.pg.Stop()
}

// Make makes an empty store, and drop removes it.
func (s *Stores) Make(ctx context.Context) (_ Store, drop func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pg == nil {
		return Store{}, func() {}, nil
	}
	s.made++
	name := fmt.Sprintf("d%d", s.made)
	if err := s.pg.CreateDB(ctx, name, ""); err != nil {
		return Store{}, nil, err
	}
	return Store{URL: s.pg.URL(name), Lease: s.lease}, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		_ = s.pg.DropDB(context.WithoutCancel(ctx), name) // the server goes soon
	}, nil
}

// Restart has the database server crash and come back.
func (s *Stores) Restart(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pg.Restart(ctx, pgserver.Immediate)
}
