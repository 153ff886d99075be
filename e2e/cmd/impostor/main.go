//go:build linux

// Command impostor is put into sandboxes to attack the server from there: it plays the
// runner, and swaps files while the server works on them. It prints one line about
// what it did.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/adversary/impostor"
)

func main() {
	said, err := run()
	if err != nil {
		said = "cannot: " + err.Error()
	}
	fmt.Fprintln(os.Stdout, said)
}

func run() (string, error) {
	const tight = 20 // frames are large, and the sandbox is small
	debug.SetGCPercent(tight)
	what := flag.String("do", "", "flood, greet, broken, knock, leave, lie, forge, snipe or swap")
	field := flag.String("field", "", "of a flood or a greeting: which field is filled; texts for one text after the other")
	how := flag.String("how", "", "of a lie: which")
	conns := flag.Int("conns", 8, "of a flood or a greeting: how many connections at once")
	long := flag.Duration("for", 3*time.Second, "how long")
	times := flag.Int("n", 10_000, "of knocking and leaving: how often")
	session := flag.String("session", "", "of a forgery: whose fence")
	generation := flag.Uint64("generation", 1, "of a forgery: of which of its sandboxes")
	flag.Parse()
	r := impostor.Find()
	switch *what {
	case "flood", "greet":
		send := r.Flood
		if *what == "greet" {
			send = r.Greet
		}
		if *field == "texts" {
			var all int64
			for _, f := range impostor.Texts() {
				n, _ := send(f, *conns, *long) // some of them go through
				all += n
			}
			return fmt.Sprintf("sent %d", all), nil
		}
		for _, f := range append(impostor.Repeated(), impostor.Texts()...) {
			if f.String() == *field {
				n, err := send(f, *conns, *long)
				return fmt.Sprintf("sent %d", n), err
			}
		}
		return "", fmt.Errorf("frames have no field %q", *field)
	case "broken":
		n, err := r.Broken()
		return fmt.Sprintf("sent %d", n), err
	case "knock":
		n, err := r.Knock(*times, *long)
		return fmt.Sprintf("sent %d", n), err
	case "leave":
		n, err := r.Leave(*times, *long)
		return fmt.Sprintf("sent %d", n), err
	case "lie":
		n, err := r.Lie(*how, *long)
		return fmt.Sprintf("asked %d", n), err
	case "forge":
		return "forged", r.Forge(dormouse.SessionID(*session), *generation)
	case "snipe":
		go func() { _, _ = impostor.Snipe(filepath.Dir(r.Socket), filepath.Base(r.Socket), flag.Arg(0), *long) }() // two hit more often
		n, err := impostor.Snipe(filepath.Dir(r.Socket), filepath.Base(r.Socket), flag.Arg(0), *long)
		return fmt.Sprintf("sniped %d", n), err
	case "swap":
		if flag.NArg() < 2 {
			return "", errors.New("swap takes a path and what it is to lead to")
		}
		n, err := impostor.Swap(flag.Arg(0), flag.Args()[1:], *long)
		return fmt.Sprintf("swapped %d", n), err
	}
	return "", fmt.Errorf("there is nothing called %q to do", *what)
}
