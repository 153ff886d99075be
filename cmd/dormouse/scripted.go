//go:build !windows

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/dormouse-run/dormouse/internal/connlimit"
	"github.com/dormouse-run/dormouse/model/scripted"
)

func newScriptedModel() *cobra.Command {
	var listen string
	var keyed bool
	cmd := &cobra.Command{
		Use:    "scripted-model",
		Short:  "Serve a model that says what prompts tell it to say",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			l, err := new(net.ListenConfig).Listen(ctx, "tcp", listen)
			if err != nil {
				return err
			}
			s := newHTTPServer(scripted.NewServer(scripted.Options{Keyed: keyed}), slog.New(slog.DiscardHandler))
			s.ReadTimeout, s.WriteTimeout = 0, 0 // it may be told to say nothing for long
			conns, answer := connlimit.New(mostConns(defaultConns)), s.Handler
			s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				connlimit.InUse(r.Context()) // it has no strangers
				answer.ServeHTTP(w, r)
			})
			conns.Apply(s)
			fmt.Fprintf(cmd.OutOrStdout(), "http://%s\n", l.Addr())
			context.AfterFunc(ctx, func() { _ = s.Close() })
			if err := s.Serve(conns.Listen(l)); !errors.Is(err, http.ErrServerClosed) {
				return err
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:0", "`address` to listen on")
	cmd.Flags().BoolVar(&keyed, "keyed", true, "honour idempotency keys")
	return cmd
}
