package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// tree is a directory of many files on this machine. In sandboxes and containers
// the same one lies at the same name.
type tree struct{ dir string }

const (
	treeName = "tree"
	// perDir is how many files a directory of a tree has.
	perDir = 100
	// changedFiles is how many of them change from one snapshot to the next, each in
	// a directory of its own.
	changedFiles = 10
)

// makeTree writes files that hold so many bytes in all. A quarter of each is noise,
// which packs about as sources with their libraries do.
func makeTree(dir string, files int, size int64) (*tree, error) {
	t := &tree{dir: filepath.Join(dir, treeName)}
	noise := rand.NewChaCha8([32]byte{}) // the same in every run
	each := int(size) / files
	for n := range files {
		name := filepath.Join(t.dir, fileOf(n))
		if n%perDir == 0 {
			if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
				return nil, err
			}
		}
		body := make([]byte, each/4, each)
		_, _ = noise.Read(body) // it never fails
		body = append([]byte(lineOf(n)+"\n"), body...)
		for len(body) < each {
			body = append(body, "\nand one more line of what is in most files: words\n"...)
		}
		if err := os.WriteFile(name, body, 0o644); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// fileOf and lineOf are the name of a file in a tree, and how it begins.
func fileOf(n int) string { return fmt.Sprintf("d%d/f%d", n/perDir, n%perDir) }
func lineOf(n int) string { return fmt.Sprintf("file %d", n) }

// firstLine is a command for bash that says how a file in a tree begins. It forks
// nothing.
func firstLine(n int) string { return "read -r x <" + treeName + "/" + fileOf(n) + "; echo $x" }

// changes is a command for bash that makes the changes of one round, the same ones
// wherever the tree is. Each round has files of its own.
func changes(round int) string {
	var s strings.Builder
	for n := range changedFiles {
		fmt.Fprintf(&s, "echo round %d >>%s/%s; ", round, treeName, fileOf(n*perDir+round%perDir))
	}
	return s.String()
}

// do runs a command for bash where the tree is on this machine.
func (t *tree) do(ctx context.Context, command string) error {
	cmd := exec.CommandContext(ctx, "/bin/bash", "-c", command)
	cmd.Dir = filepath.Dir(t.dir)
	_, err := output(cmd)
	return err
}

// pack writes the whole tree into one packed file.
func (t *tree) pack(ctx context.Context, file string) error {
	cmd := exec.CommandContext(ctx, "/bin/bash", "-c", `set -o pipefail; tar -C "$1" -cf - . | zstd -q -f -T0 -o "$2"`, "bash", t.dir, file)
	_, err := output(cmd)
	return err
}

// put copies the tree into a session's workspace.
func (t *tree) put(ctx context.Context, s *server, session string) error {
	cmd := exec.CommandContext(ctx, "tar", "-C", t.dir, "-cf", "-", ".")
	from, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	if err := s.putTree(ctx, session, treeName, from); err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return err
	}
	return cmd.Wait()
}

// grow writes a tree of small files in a session's sandbox, in pieces that take less
// than a second: a longer command gives way to whatever else the machine does. Such
// files begin as those of other trees do.
func grow(ctx context.Context, s *server, session string, files, size int) error {
	const piece = 250
	for from := 0; from < files; from += piece {
		script := fmt.Sprintf(`open R, "<", "/dev/urandom"; mkdir "%[1]s"; for $n (%[2]d..%[3]d) { $d = int($n/%[4]d); mkdir "%[1]s/d$d" unless $n %% %[4]d; `+
			`sysread(R, $b, %[5]d/4); open F, ">", "%[1]s/d$d/f" . $n %% %[4]d or die; print F "file $n\n", $b, "more words\n" x (%[5]d*3/4/11); close F }`,
			treeName, from, min(from+piece, files)-1, perDir, size)
		if _, err := s.exec(ctx, session, "main", "perl -e '"+script+"'"); err != nil {
			return err
		}
	}
	return nil
}

// backup is a restic repository with one snapshot of a tree.
type backup struct {
	dir  string
	tree *tree
}

// startBackup makes a repository, and the first snapshot, which has everything.
func startBackup(ctx context.Context, dir string, t *tree) (*backup, error) {
	b := &backup{dir: dir, tree: t}
	if err := b.do(ctx, "init"); err != nil {
		return nil, err
	}
	return b, b.again(ctx)
}

// again takes the next snapshot.
func (b *backup) again(ctx context.Context) error { return b.do(ctx, "backup", b.tree.dir) }

func (b *backup) do(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "restic", append([]string{"--quiet", "--repo", filepath.Join(b.dir, "repo"), "--cache-dir", filepath.Join(b.dir, "cache")}, args...)...)
	cmd.Env = append(os.Environ(), "RESTIC_PASSWORD=bench")
	cmd.Stdin = nil
	_, err := output(cmd)
	return err
}
