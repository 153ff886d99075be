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

	"github.com/coder/websocket"
	"github.com/spf13/cobra"
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
			return forward(ctx, cmd, c, args[0], wanted)
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

// forward listens until ctx ends, and then lets go of every connection.
func forward(ctx context.Context, cmd *cobra.Command, c *client, session string, wanted []forwarded) error {
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
		path := sessionPath(session, "ports", strconv.Itoa(int(wanted[i].Port)), "stream")
		running.Go(func() {
			accept(ctx, l, &running, func(conn net.Conn) error { return c.bridge(ctx, conn, path) }, complain)
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
			select { // too many files are open, perhaps
			case <-ctx.Done():
			case <-time.After(time.Second / 4):
			}
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

// bridge carries a connection over a WebSocket. An empty frame ends one way.
func (c *client) bridge(ctx context.Context, conn net.Conn, path string) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ws, _, err := c.dial(ctx, path)
	if err != nil {
		return err
	}
	defer func() { _ = ws.CloseNow() }()
	var typing sync.WaitGroup
	defer typing.Wait()
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	typing.Go(func() {
		if sendAll(ctx, ws, conn) != nil {
			stop()
		}
	})
	for {
		_, b, err := ws.Read(ctx)
		if closed, ok := closedBy(err); ok && closed.Code != websocket.StatusNormalClosure {
			return errors.New(closed.Reason)
		}
		if err != nil {
			return nil // one of the two has left, and the other is told by the end
		}
		if len(b) == 0 {
			if half, ok := conn.(interface{ CloseWrite() error }); ok {
				_ = half.CloseWrite()
			}
			continue
		}
		if _, err := conn.Write(b); err != nil {
			return nil
		}
	}
}

// sendAll sends what r reads, and that it has ended.
func sendAll(ctx context.Context, ws *websocket.Conn, r io.Reader) error {
	buf := make([]byte, 32<<10)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			if err := ws.Write(ctx, websocket.MessageBinary, buf[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return ws.Write(ctx, websocket.MessageBinary, nil)
		}
		if err != nil {
			return err
		}
	}
}
