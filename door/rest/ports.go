package rest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/coder/websocket"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/client"
	"github.com/dormouse-run/dormouse/session/visit"
)

func (s *Server) ports(c call) error {
	return s.askSandbox(c, func(ctx context.Context, v *visit.Visit) error {
		all, err := v.Ports(ctx)
		if err != nil {
			return err
		}
		answer := Ports{Ports: make([]client.Port, len(all))}
		for i, p := range all {
			answer.Ports[i] = client.Port(p)
		}
		return c.Answer(http.StatusOK, answer)
	})
}

// portStream is one connection to a port, as a WebSocket. An empty binary frame
// closes one way and leaves the other open.
func (s *Server) portStream(c call) error {
	q, err := c.query("wake")
	if err != nil {
		return err
	}
	wake, err := wakeParam(q)
	if err != nil {
		return err
	}
	port, err := strconv.ParseUint(c.R.PathValue("port"), 10, 16)
	if err != nil || port == 0 {
		return fmt.Errorf("a port is a number from 1 to 65535: %w", dormouse.ErrInvalid)
	}
	if err := wantsSocket(c.R); err != nil {
		return err
	}
	v, err := s.visit(c, wake)
	if err != nil {
		return err
	}
	defer v.Close()
	conn, err := openStream(c, v, visit.Stream{Port: &visit.PortStream{Port: uint16(port)}})
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	k, err := s.accept(c, conn)
	if err != nil {
		return err
	}
	k.halves = true
	k.carry(v.Life(), s.KeepAlive, func(cause error) (websocket.StatusCode, string) { return portEnd(v, cause) })
	return nil
}

// portEnd says why a connection ended.
func portEnd(v *visit.Visit, cause error) (websocket.StatusCode, string) {
	switch {
	case v.Err() != nil:
		return closeReason(v.Err())
	case errors.Is(cause, io.EOF):
		return websocket.StatusNormalClosure, ""
	case errors.Is(cause, errFrame):
		return closeReason(cause)
	}
	return websocket.StatusGoingAway, "the connection to the port broke"
}
