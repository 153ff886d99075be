//go:build linux

// Command hand makes random changes to the directory it is in, and prints the
// resulting contents. It is put into sandboxes.
package main

import (
	"compress/gzip"
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"

	"github.com/dormouse-run/dormouse/snapshot/layer/layertest"
)

func main() {
	seed := flag.Uint64("seed", 1, "what is done follows from it")
	steps := flag.Int("steps", 0, "how many things are done")
	flag.Parse()
	if err := run(*seed, *steps, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "hand:", err)
		os.Exit(1)
	}
}

func run(seed uint64, steps int, out io.Writer) error {
	at, err := os.Getwd()
	if err != nil {
		return err
	}
	hand := layertest.Hand{R: rand.New(rand.NewPCG(seed, 1)), Dir: at}
	for range steps {
		if err := hand.Step(); err != nil {
			return err
		}
	}
	tree, err := layertest.Listing(at)
	if err != nil {
		return err
	}
	coded := base64.NewEncoder(base64.StdEncoding, out)
	packed := gzip.NewWriter(coded)
	_, err = io.WriteString(packed, tree)
	return errors.Join(err, packed.Close(), coded.Close())
}
