// Command attacks plays hostile code inside real sandboxes of a real server. It
// says of each case what was tried and what was seen, and fails if one broke out.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"syscall"

	"github.com/dormouse-run/dormouse/e2e/attacks"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "attacks:", err)
		os.Exit(1)
	}
}

func run() (err error) {
	only := flag.String("run", "", "only cases whose name matches")
	binary := flag.String("binary", "bin/dormouse", "the server")
	list := flag.Bool("list", false, "name the cases and stop")
	flag.Parse()
	pattern, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	if *list {
		for _, c := range attacks.Cases() {
			fmt.Fprintf(os.Stdout, "%-22s %s\n", c.Name, c.Tries)
		}
		return nil
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	w, err := attacks.Open(ctx, *binary)
	if err != nil {
		return err
	}
	cases, broke := attacks.Run(ctx, w, os.Stdout, pattern)
	if broke > 0 {
		fmt.Fprintln(os.Stderr, w.Log())
	}
	err = errors.Join(context.Cause(ctx), w.Close())
	fmt.Fprintf(os.Stdout, "sandbox: cases=%d broke=%d\n", cases, broke)
	switch {
	case err != nil:
		return err
	case broke > 0:
		return fmt.Errorf("%d of %d cases broke out", broke, cases)
	case cases == 0:
		return errors.New("no case ran")
	}
	return nil
}
