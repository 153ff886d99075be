package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

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
			s := &http.Server{Handler: scripted.NewServer(scripted.Options{Keyed: keyed}), ReadHeaderTimeout: 10 * time.Second}
			fmt.Fprintf(cmd.OutOrStdout(), "http://%s\n", l.Addr())
			context.AfterFunc(ctx, func() { _ = s.Close() })
			if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				return err
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:0", "`address` to listen on")
	cmd.Flags().BoolVar(&keyed, "keyed", true, "honour idempotency keys")
	return cmd
}
