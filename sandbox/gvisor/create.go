//go:build linux

package gvisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/dormouse-run/dormouse/runner"
)

func (d *Driver) create(ctx context.Context, f runner.Fence) (*live, error) {
	v := d.volumeOf(f.Session)
	if err := os.MkdirAll(v.dir, 0o700); err != nil {
		return nil, err
	}
	unlock, err := v.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	l, err := d.adopt(ctx, v, f)
	if l != nil || err != nil {
		return l, err
	}
	return d.begin(ctx, v, f)
}

// adopt takes over the sandbox that an earlier call for the same generation has
// started, and ends any other.
func (d *Driver) adopt(ctx context.Context, v volume, f runner.Fence) (*live, error) {
	r, err := v.readRecord()
	if err != nil || r == nil {
		return nil, err
	}
	b, err := d.boxOf(r.Box)
	if err != nil {
		return nil, err
	}
	known, err := b.known()
	if err != nil {
		return nil, err
	}
	if r.Generation > f.Generation || known.Session == f.Session && known.Generation == f.Generation && known.Epoch > f.Epoch {
		return nil, runner.ErrStale
	}
	if r.Generation == f.Generation && r.Started {
		k, err := findSentry(d.conf, b.id)
		if err != nil {
			return nil, err
		}
		if k.alive() {
			if l, err := d.open(ctx, handle{Session: f.Session, Generation: f.Generation, Box: b.id}, b, f, k); err == nil {
				return l, nil
			}
		}
	}
	return nil, d.end(ctx, b, v)
}

// begin starts a sandbox.
func (d *Driver) begin(ctx context.Context, v volume, f runner.Fence) (_ *live, err error) {
	b, err := d.newBox(newSecret())
	if err != nil {
		return nil, err
	}
	if err := v.writeRecord(record{Box: b.id, Generation: f.Generation}); err != nil {
		return nil, errors.Join(err, b.remove(ctx))
	}
	defer func() {
		if err != nil {
			undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoWithin)
			defer cancel()
			err = errors.Join(err, d.end(undo, b, v))
		}
	}()
	if err := d.openVolume(v); err != nil {
		return nil, err
	}
	if err := b.fill(v); err != nil {
		return nil, err
	}
	k, err := d.launch(b)
	if err != nil {
		return nil, err
	}
	if err := k.start(); err != nil {
		return nil, errors.Join(err, letGo(k))
	}
	l, err := d.open(ctx, handle{Session: f.Session, Generation: f.Generation, Box: b.id}, b, f, k)
	if err != nil {
		return nil, err
	}
	if err := v.writeRecord(record{Box: b.id, Generation: f.Generation, Started: true}); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// launch starts the kernel of a box, under its limits, with nothing in it yet.
func (d *Driver) launch(b box) (*sentry, error) {
	spec := d.specOf(b)
	raw, err := json.Marshal(spec)
	if err == nil {
		err = os.WriteFile(filepath.Join(b.bundle(), "config.json"), raw, 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("describe the sandbox: %w", err)
	}
	k, err := newSentry(d.conf, b.id, spec, b.bundle())
	if err != nil {
		return nil, err
	}
	if err := d.cgroupOf(b).hold(d.opts.Limits, k.pids()); err != nil {
		return nil, errors.Join(err, letGo(k))
	}
	return k, nil
}
