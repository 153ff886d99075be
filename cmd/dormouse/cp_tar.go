package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/dormouse-run/dormouse/runner"
)

// unpack puts what a tar holds at a path here: a directory of that name, or a
// file. A tar that a sandbox sent may say anything; nothing it says is written
// elsewhere.
func unpack(from io.Reader, name, to string) error {
	var head bytes.Buffer
	first := tar.NewReader(io.TeeReader(from, &head))
	h, err := first.Next()
	if err != nil {
		return fmt.Errorf("read tar: %w", err)
	}
	at, err := os.Stat(to)
	into := err == nil && at.IsDir()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if h.Typeflag != tar.TypeDir {
		if into {
			to = filepath.Join(to, filepath.Base(filepath.Clean("/"+h.Name)))
		}
		return unpackFile(first, h, to)
	}
	if into && filepath.IsLocal(name) {
		to = filepath.Join(to, name) // the directory itself, unless it has no name
	}
	if err := os.MkdirAll(to, 0o755); err != nil { //nolint:gosec // as mkdir makes them
		return err
	}
	root, err := os.OpenRoot(to)
	if err != nil {
		return err
	}
	_, err = runner.UnpackTree(root, io.MultiReader(&head, from))
	return errors.Join(err, root.Close())
}

// unpackFile puts a file in its place, whole or not at all.
func unpackFile(from io.Reader, h *tar.Header, to string) (err error) {
	if h.Typeflag != tar.TypeReg {
		return fmt.Errorf("%q is no file", h.Name)
	}
	f, err := os.CreateTemp(filepath.Dir(to), ".dormouse-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // in vain, if it has its name
	_, err = io.CopyN(f, from, h.Size)
	if err == nil {
		err = f.Chmod(fs.FileMode(h.Mode) & fs.ModePerm) //nolint:gosec // only the lowest bits count
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Chtimes(f.Name(), h.ModTime, h.ModTime); err != nil {
		return err
	}
	return os.Rename(f.Name(), to)
}

// pack writes a directory's content as a tar, or a file under a name.
func pack(w io.Writer, from, name string, at fs.FileInfo) error {
	if !at.IsDir() {
		return packFile(w, from, name)
	}
	root, err := os.OpenRoot(from)
	if err != nil {
		return err
	}
	_, err = runner.PackTree(w, root, ".")
	return errors.Join(err, root.Close())
}

func packFile(w io.Writer, from, name string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	at, err := f.Stat()
	if err != nil {
		return err
	}
	if !at.Mode().IsRegular() {
		return errors.New("it is neither a file nor a directory")
	}
	t := tar.NewWriter(w)
	h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: at.Size(), Mode: int64(at.Mode().Perm()), ModTime: at.ModTime(), Format: tar.FormatPAX}
	if err := t.WriteHeader(h); err != nil {
		return err
	}
	if _, err := io.CopyN(t, f, at.Size()); err != nil {
		return err
	}
	return t.Close()
}
