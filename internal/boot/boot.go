//go:build linux

// Package boot tells one start of the machine from another.
package boot

import (
	"fmt"
	"os"
	"strings"

	"github.com/dormouse-run/dormouse/internal/crash"
)

// ID names the present start of the machine. It is another one after each.
func ID() (string, error) {
	raw, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("tell this boot from others: %w", err)
	}
	return crash.Boot(strings.TrimSpace(string(raw))), nil
}
