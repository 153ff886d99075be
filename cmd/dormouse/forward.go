package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/client"
	"github.com/dormouse-run/dormouse/internal/sleep"
)

func newForward() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "forward SESSION [LOCAL:]PORT…",
		Short: "Reach ports of a session's sandbox from this machine",
		Long: `Listen on this machine's loopback and carry every connection to a port in a session's
sandbox, until interrupted. LOCAL is the port here, 0 for any that is free; it is
the same as PORT unless it is given.

It keeps listening while the session sleeps; whoever connects then wakes it.`,
		Example: `  dormouse forward sesn_… 8080
  dormouse forward sesn_… 3000:8080 0:5432`,
		Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			var wanted []forwarded
			for _, arg := range args[1:] {
				f, err := parseForward(arg)
				if err != nil {
					return err
				}
				wanted = append(wanted, f)
			}
			c, err := connect(cmd)
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return forward(ctx, cmd, c, dormouse.SessionID(args[0]), wanted)
		},
	}
	clientFlags(cmd)
	return cmd
}

// forwarded is a port here and the one in a sandbox that it leads to.
type forwarded struct {
	Local string `json:"local"`
	Port  uint16 `json:"port"`
}

func parseForward(arg string) (forwarded, error) {
	local, port, two := strings.Cut(arg, ":")
	if !two {
		port = local
	}
	here, bad := strconv.ParseUint(local, 10, 16)
	there, err := strconv.ParseUint(port, 10, 16)
	if bad != nil || err != nil || there == 0 {
		return forwarded{}, usage("%q is not a port, or two as in 3000:8080", arg)
	}
	return forwarded{Local: net.JoinHostPort("127.0.0.1", strconv.FormatUint(here, 10)), Port: uint16(there)}, nil
}

// forward listens until ctx ends, and then closes every connection.
func forward(ctx context.Context, cmd *cobra.Command, c *client.Client, session dormouse.SessionID, wanted []forwarded) error {
	var running sync.WaitGroup
	defer running.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	asJSON, _ := cmd.Flags().GetBool("json")
	var listeners []net.Listener
	for i := range wanted {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", wanted[i].Local)
		if err != nil {
			return fmt.Errorf("%w; choose another port as in 0:%d", err, wanted[i].Port)
		}
		defer context.AfterFunc(ctx, func() { _ = l.Close() })()
		defer func() { _ = l.Close() }()
		listeners, wanted[i].Local = append(listeners, l), l.Addr().String()
	}
	for _, f := range wanted {
		if asJSON {
			if err := json.NewEncoder(cmd.OutOrStdout()).Encode(f); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s leads to port %d of %s\n", f.Local, f.Port, session)
	}
	var mu sync.Mutex
	complain := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintln(cmd.ErrOrStderr(), "dormouse:", err)
	}
	for i, l := range listeners {
		running.Go(func() {
			accept(ctx, l, &running, func(conn net.Conn) error { return bridge(ctx, c, conn, session, wanted[i].Port) }, complain)
		})
	}
	<-ctx.Done()
	return nil
}

// mostForwarded bounds the connections of one port that is forwarded.
const mostForwarded = 256

// accept serves connections until its listener is closed. One too many is closed.
func accept(ctx context.Context, l net.Listener, running *sync.WaitGroup, serve func(net.Conn) error, complain func(error)) {
	free := make(chan struct{}, mostForwarded)
	for {
		conn, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return
			}
			complain(err)
			_ = sleep.For(ctx, time.Second/4) // too many files are open, perhaps
			continue
		}
		select {
		case free <- struct{}{}:
		default:
			_ = conn.Close()
			continue
		}
		running.Go(func() {
			defer func() { <-free }()
			defer func() { _ = conn.Close() }()
			if err := serve(conn); err != nil && ctx.Err() == nil {
				complain(err)
			}
		})
	}
}

// bridge carries a connection to a port in a sandbox.
func bridge(ctx context.Context, c *client.Client, conn net.Conn, session dormouse.SessionID, port uint16) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	far, err := c.DialPort(ctx, session, port)
	if err != nil {
		return err
	}
	defer func() { _ = far.Close() }()
	var typing sync.WaitGroup
	defer typing.Wait()
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	typing.Go(func() {
		_, err := io.Copy(far, conn)
		if err == nil {
			err = far.CloseWrite()
		}
		if err != nil {
			stop()
		}
	})
	if _, err = io.Copy(conn, far); err == nil { // all was said that way, and perhaps not the other
		if half, ok := conn.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
		_, err = io.Copy(io.Discard, far)
	}
	if closed, ok := errors.AsType[*client.Closed](err); ok {
		return closed
	}
	return nil // one of the two has left, and the other is told by the end
}
