// Command kernel is nothing but a gVisor kernel, for tests whose own program
// cannot be one.
package main

import "github.com/dormouse-run/dormouse/sandbox/gvisor"

func main() { gvisor.Main() }
