//go:build !windows

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/dormouse-run/dormouse/internal/atomicfile"
)

// ownMask keeps the files that this program writes for itself private. Files that are
// seen inside sandboxes get their modes explicitly.
const ownMask = 0o077

// others are the permissions of all users but the owner.
const others fs.FileMode = 0o077

// ownNames are glob patterns for the files of a data directory. Any other file belongs to
// another user, who would be locked out if the directory became private.
var ownNames = []string{
	"dormouse.db*", "dormouse.lock", tokenFile + "*", serverFile + "*", configFile, refsKeyFile + "*",
	"bin", blobDir, "images", sandboxDir, snapshotsDir, serversDir, heldFile, madeFile,
	".doctor-*", ".tmp-*",
	"lost+found", // of a file system that is there for this alone
}

// claimData makes the data directory private before anything is written to it. If that is
// not possible it fails, with the commands that would help.
func claimData(ctx context.Context, data string, log *slog.Logger) error {
	syscall.Umask(ownMask)
	if err := os.MkdirAll(data, 0o700); err != nil {
		return fmt.Errorf("make the data directory: %w", err)
	}
	wide, err := checkOwn(data)
	if err != nil {
		return err
	}
	if wide != 0 {
		if err := os.Chmod(data, 0o700); err != nil { //nolint:gosec // it is a directory
			return fmt.Errorf("close the data directory to others: %w", err)
		}
		if at, err := os.Stat(data); err != nil || at.Mode()&others != 0 {
			return errors.Join(fmt.Errorf("others can read %s and its file system does not let that be changed; choose another directory with --data", data), err)
		}
		// Another user may have added something until now.
		if _, err := checkEntries(data); err != nil {
			return err
		}
		log.WarnContext(ctx, "data directory closed, which others could read", "data", data, "mode", modeOf(wide))
	}
	if err := sweepTemporary(data); err != nil {
		log.WarnContext(ctx, "temporary files of servers that were killed not removed", "error", err)
	}
	return closeFiles(data)
}

// sweepTemporary removes the temporary files that killed servers have left in a data
// directory and in those of its own directories that are not swept otherwise.
func sweepTemporary(data string) error {
	errs := []error{atomicfile.Sweep(data)}
	for _, dir := range []string{"bin", blobDir, sandboxDir, snapshotsDir, serversDir} {
		errs = append(errs, atomicfile.Sweep(filepath.Join(data, dir)))
	}
	return errors.Join(errs...)
}

// checkOwn returns the mode of a data directory that others can read, 0 if none can. It
// refuses a directory that is not ours to make private, or into which another user may
// have put files that a server trusts.
func checkOwn(data string) (wide fs.FileMode, err error) {
	at, err := os.Stat(data)
	if err != nil {
		return 0, fmt.Errorf("look at the data directory: %w", err)
	}
	if !at.IsDir() {
		return 0, usage("--data %s is not a directory", data)
	}
	if owner, ok := at.Sys().(*syscall.Stat_t); ok && int(owner.Uid) != os.Geteuid() {
		return 0, fmt.Errorf("the data directory %s belongs to user %d, who could read and replace everything in it; give it to the server with: chown %d %s && chmod 0700 %s",
			data, owner.Uid, os.Geteuid(), quoted(data), quoted(data))
	}
	foreign, err := checkEntries(data)
	if err != nil {
		return 0, err
	}
	if at.Mode()&others == 0 {
		return 0, nil // then other files in it do no harm
	}
	if foreign != "" {
		return 0, fmt.Errorf("others can read the data directory %s (mode %s), and %.80q in it is not the server's; choose a directory of its own with --data, or close this one with: chmod 0700 %s",
			data, modeOf(at.Mode()), foreign, quoted(data))
	}
	return at.Mode(), nil
}

// checkEntries refuses a data directory in which an entry with a server's name belongs to
// another user: their token would let them in, their key or database would be trusted.
// That the directory is private now does not help, for the entry may be older. It also
// returns the name of an entry that no server makes, if there is one.
func checkEntries(data string) (foreign string, err error) {
	entries, err := os.ReadDir(data)
	if err != nil {
		return "", fmt.Errorf("look at the data directory: %w", err)
	}
	for _, e := range entries {
		if !slices.ContainsFunc(ownNames, func(name string) bool { is, _ := filepath.Match(name, e.Name()); return is }) {
			foreign = e.Name()
			continue
		}
		at, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) { // SQLite removes some of them
			continue
		}
		if err != nil {
			return "", fmt.Errorf("look at the data directory: %w", err)
		}
		if err := checkOwner(data, at); err != nil {
			return "", err
		}
	}
	return foreign, nil
}

// checkOwner refuses an entry of a data directory that is not root's or our own.
func checkOwner(data string, at fs.FileInfo) error {
	owner, ok := at.Sys().(*syscall.Stat_t)
	if !ok || owner.Uid == 0 || int(owner.Uid) == os.Geteuid() {
		return nil
	}
	path := filepath.Join(data, at.Name())
	return fmt.Errorf("%.80q in the data directory belongs to user %d, who may have put it there for the server to believe; close the directory with: chmod 0700 %s, look at it, and remove it with: rm -r %s, or, if it is what you want, give it to the server with: chown -hR %d %s",
		at.Name(), owner.Uid, quoted(data), quoted(path), os.Geteuid(), quoted(path))
}

// closeFiles makes private what was written before the directory was private, and may be
// open or linked elsewhere.
func closeFiles(data string) error {
	found, err := filepath.Glob(filepath.Join(escapeGlob(data), "dormouse.*"))
	if err != nil {
		return err
	}
	for _, name := range append(found, filepath.Join(data, configFile)) {
		at, err := os.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) || err == nil && (!at.Mode().IsRegular() || at.Mode()&others == 0) {
			continue
		}
		if err == nil {
			err = os.Chmod(name, at.Mode().Perm()&^others)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // SQLite removes some of them
			return fmt.Errorf("close what others could read: %w", err)
		}
	}
	return nil
}

// escapeGlob escapes a path so that as a pattern it matches only itself.
func escapeGlob(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

func modeOf(m fs.FileMode) string { return fmt.Sprintf("%04o", m.Perm()) }

// quoted quotes a path for a shell.
func quoted(path string) string {
	if path != "" && strings.Trim(path, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+:@") == "" && !strings.HasPrefix(path, "-") {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}
