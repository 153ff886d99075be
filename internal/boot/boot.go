//go:build linux

// Package boot identifies the current boot of the machine.
package boot

import (
	"fmt"
	"os"
	"strings"

	"github.com/dormouse-run/dormouse/internal/crash"
)

// ID is the id of the current boot. Every boot has another one.
func ID() (string, error) {
	raw, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("tell this boot from others: %w", err)
	}
	return crash.Boot(strings.TrimSpace(string(raw))), nil
}
