package runner

import (
	"fmt"
	"strings"

	"github.com/dormouse-run/dormouse"
)

const (
	maxShellName = 128
	shellLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-"
)

func (e Exec) validate() error {
	if len(e.Shell) > maxShellName || strings.Trim(e.Shell, shellLetters) != "" {
		return fmt.Errorf("shell name %.200q: %w", e.Shell, dormouse.ErrInvalid)
	}
	return nil
}
