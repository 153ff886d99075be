// Command hello is the only program of an image.
package main

import (
	"fmt"
	"os"
)

func main() {
	text, err := os.ReadFile("/etc/greeting")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Printf("%s, %s\n", text, os.Getenv("NAME"))
}
