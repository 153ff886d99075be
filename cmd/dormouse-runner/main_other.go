//go:build !linux

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "dormouse-runner: runs on Linux only")
	os.Exit(1)
}
