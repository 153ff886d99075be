package main

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// exposed lists what in a directory others could read, but for what is in a
// sandbox's own directory.
func exposed(t *testing.T, dir string) (found []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err == nil && e.Type() != fs.ModeSymlink && info.Mode()&others != 0 {
			found = append(found, path+" "+info.Mode().String())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestNobodyElseReadsWhatAServerKeeps(t *testing.T) {
	wide := func(dir string) error { return os.Chmod(dir, 0o755) }
	for name, prepare := range map[string]func(string) error{
		"fresh":                    func(dir string) error { return os.Remove(dir) },
		"made by somebody":         wide,
		"a file system of its own": func(dir string) error { _ = wide(dir); return os.Mkdir(filepath.Join(dir, "lost+found"), 0o700) },
		"with a configuration": func(dir string) error {
			_ = wide(dir)
			return os.WriteFile(filepath.Join(dir, configFile), []byte("{}"), 0o644)
		},
		"with somebody's file, closed": func(dir string) error {
			_ = os.Chmod(dir, 0o700)
			return os.WriteFile(filepath.Join(dir, "notes"), nil, 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := prepare(dir); err != nil {
				t.Fatal(err)
			}
			s := startServer(t, dir)
			if found := exposed(t, dir); len(found) > 0 {
				t.Errorf("others can read %v", found)
			}
			if err := s.stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestADatabaseThatOthersCouldReadIsClosed(t *testing.T) {
	data := t.TempDir()
	if err := startServer(t, data).stop(); err != nil {
		t.Fatal(err)
	}
	files := []string{"dormouse.db", "dormouse.db-wal", "dormouse.db-shm"}
	widen := func() {
		t.Helper()
		for _, name := range files {
			f, err := os.OpenFile(filepath.Join(data, name), os.O_CREATE, 0o600)
			if err != nil {
				t.Fatal(err)
			}
			_ = f.Close()
			if err := os.Chmod(f.Name(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chmod(data, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	widen()
	out, errs, code := runIn(t.Context(), "", "--data", data, "doctor", "--runner", "/bin/true", "--json")
	if code != 0 || !strings.Contains(out, "others can read it (mode 0755) until the next start closes it") {
		t.Errorf("doctor: exit %d: %s%s", code, out, errs)
	}
	for _, args := range [][]string{{"store", "rebuild", "--check"}, {"store", "migrate"}} {
		widen()
		if out, errs, code := runIn(t.Context(), "", append([]string{"--data", data}, args...)...); code != 0 {
			t.Errorf("%v: exit %d: %s%s", args, code, out, errs)
		}
		if found := exposed(t, data); len(found) > 0 {
			t.Errorf("after %v others can read %v", args, found)
		}
	}
	widen()
	s := startServer(t, data)
	if found := exposed(t, data); len(found) > 0 {
		t.Errorf("others can read %v", found)
	}
	if err := s.stop(); err != nil {
		t.Error(err)
	}
}

func TestADirectoryOfOthersIsRefusedWithWhatMendsIt(t *testing.T) {
	shared := filepath.Join(t.TempDir(), "it's shared")
	if err := os.MkdirAll(filepath.Join(shared, "www"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(shared, 0o755); err != nil {
		t.Fatal(err)
	}
	mend := `chmod 0700 '` + strings.ReplaceAll(shared, "'", `'\''`) + `'`
	for _, args := range [][]string{{"serve", "--runner", "/bin/true", "--listen", "127.0.0.1:0"}, {"doctor", "--runner", "/bin/true"}, {"store", "migrate"}} {
		out, errs, code := runIn(t.Context(), "", append([]string{"--data", shared}, args...)...)
		if code != exitError || !strings.Contains(out+errs, mend) || !strings.Contains(out+errs, "www") {
			t.Errorf("%v: exit %d: %s%s", args, code, out, errs)
		}
	}
	if at, err := os.Stat(shared); err != nil || at.Mode().Perm() != 0o755 {
		t.Errorf("it has become %v, %v", at.Mode(), err)
	}
	if found, _ := os.ReadDir(shared); len(found) != 1 {
		t.Errorf("something was written to it: %v", found)
	}
	if os.Geteuid() != 0 {
		return // only root can change the owner of a file
	}
	foreign := t.TempDir()
	if err := os.Chown(foreign, 12345, -1); err != nil {
		t.Fatal(err)
	}
	_, errs, code := runIn(t.Context(), "", "--data", foreign, "serve", "--runner", "/bin/true", "--listen", "127.0.0.1:0")
	if code != exitError || !strings.Contains(errs, "chown 0 "+foreign+" && chmod 0700 "+foreign) {
		t.Errorf("exit %d: %s", code, errs)
	}
}

// A directory that others could write to is no safer for being closed: what they put
// there before is still theirs, and following what the refusal prints must not be what
// lets it in.
func TestWhatAnotherUserPutInTheDataDirectoryIsNotBelieved(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("who is not root cannot give things away")
	}
	file := func(at string) error { return os.WriteFile(at, []byte("planted"), 0o600) }
	link := func(at string) error { return os.Symlink("/etc/hostname", at) }
	dir := func(at string) error { return os.Mkdir(at, 0o700) }
	for name, put := range map[string]func(string) error{
		tokenFile: file, refsKeyFile: link, configFile: file, "dormouse.db": file, "dormouse.db-wal": file,
		"dormouse.lock": file, serverFile: file, blobDir: dir, sandboxDir: dir, snapshotsDir: link,
	} {
		for _, mode := range []fs.FileMode{0o777, 0o700} {
			t.Run(name+" "+modeOf(mode), func(t *testing.T) {
				data := t.TempDir()
				path := filepath.Join(data, name)
				if err := put(path); err != nil {
					t.Fatal(err)
				}
				if err := os.Lchown(path, 12345, -1); err != nil {
					t.Fatal(err)
				}
				if err := os.Chmod(data, mode); err != nil {
					t.Fatal(err)
				}
				for _, args := range [][]string{{"serve", "--runner", "/bin/true", "--listen", "127.0.0.1:0"}, {"doctor", "--runner", "/bin/true"}, {"store", "migrate"}} {
					ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second) // a server that believes it would go on
					out, errs, code := runIn(ctx, "", append([]string{"--data", data}, args...)...)
					cancel()
					if code == 0 || !strings.Contains(out+errs, "belongs to user 12345") ||
						!strings.Contains(out+errs, "rm -r "+path) || !strings.Contains(out+errs, "chown -hR 0 "+path) {
						t.Fatalf("%v: exit %d: %s%s", args, code, out, errs)
					}
				}
				if found, _ := os.ReadDir(data); len(found) != 1 {
					t.Errorf("something was written to it: %v", found)
				}
			})
		}
	}
	t.Run("what no server reads", func(t *testing.T) {
		data := t.TempDir()
		if err := startServer(t, data).stop(); err != nil { // which leaves what a server has
			t.Fatal(err)
		}
		notes := filepath.Join(data, "notes") // which no server reads
		if err := errors.Join(os.WriteFile(notes, nil, 0o600), os.Chown(notes, 12345, -1), os.Chmod(data, 0o700)); err != nil {
			t.Fatal(err)
		}
		if err := startServer(t, data).stop(); err != nil {
			t.Error(err)
		}
	})
}

// Temporary files that a killed server has left go when the next one starts, but not those
// of one that may live.
func TestTemporaryFilesOfAKilledServerGo(t *testing.T) {
	data := t.TempDir()
	if err := os.Chmod(data, 0o700); err != nil {
		t.Fatal(err)
	}
	old, young := time.Now().Add(-2*time.Hour), time.Now()
	put := func(dir, name string, when time.Time) string {
		path := filepath.Join(data, dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Chtimes(path, when, when)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	dirs := []string{".", "bin", blobDir, sandboxDir, snapshotsDir, serversDir}
	var gone, kept []string
	for _, dir := range dirs {
		gone, kept = append(gone, put(dir, ".tmp-1", old)), append(kept, put(dir, ".tmp-2", young))
	}
	if err := claimData(t.Context(), data, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	for _, path := range gone {
		if _, err := os.Lstat(path); err == nil {
			t.Errorf("%s is left", path)
		}
	}
	for _, path := range kept {
		if _, err := os.Lstat(path); err != nil {
			t.Error(err)
		}
	}
}
