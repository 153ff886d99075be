//go:build !windows

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/dormouse-run/dormouse/internal/atomicfile"
	"github.com/dormouse-run/dormouse/internal/sleep"
)

// publish writes the address of the server to a file, for clients on this machine. If the
// disk is full it does so as soon as there is space.
func (s *server) publish(ctx context.Context) {
	write := func() error {
		b, err := json.Marshal(running{Address: s.listener.Addr().String(), PID: os.Getpid()})
		if err != nil {
			return err
		}
		return atomicfile.Write(filepath.Join(s.config.Data, serverFile), append(b, '\n'), 0o600)
	}
	err := write()
	if err == nil {
		return
	}
	s.log.WarnContext(ctx, "address not written, so clients do not find this server by itself", "error", err)
	s.running.Go(func() {
		for err != nil {
			if sleep.For(ctx, time.Second) != nil {
				return
			}
			err = write()
		}
	})
}

// withdraw removes the file that publish wrote, unless another server of the same
// directory has overwritten it since.
func (s *server) withdraw() error {
	path := filepath.Join(s.config.Data, serverFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) { // the disk was full all the time, or another server removed it
		return nil
	}
	var published running
	if err == nil && json.Unmarshal(b, &published) == nil && published.Address != s.listener.Addr().String() {
		return nil
	}
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// announce tells a person what to do next.
func (s *server) announce(out io.Writer) error {
	data := ""
	if !s.config.usual {
		data = " --data " + s.config.Data
	}
	_, err := fmt.Fprintf(out, `dormouse is listening on http://%s
its token is in %s
try this in another terminal:

  dormouse session create%s --prompt '$ uname -a' --follow

and this, to see in a minute what a session survives:

  dormouse demo

`, s.listener.Addr(), filepath.Join(s.config.Data, tokenFile), data)
	return err
}
