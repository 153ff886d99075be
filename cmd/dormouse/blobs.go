//go:build !windows

package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/dormouse-run/dormouse/blob"
	"github.com/dormouse-run/dormouse/blob/dir"
	"github.com/dormouse-run/dormouse/blob/s3"
	"github.com/dormouse-run/dormouse/internal/atomicfile"
)

// bucket says where blobs are that are not in the data directory. Its credentials are not
// a flag, because every user of the machine can read command lines.
type bucket struct {
	URL      string // s3://BUCKET/PREFIX; empty: the data directory
	Endpoint string
	Region   string
}

func (b *bucket) flags(f *pflag.FlagSet) {
	f.StringVar(&b.URL, "blobs", "", "`s3://BUCKET/PREFIX` to keep large payloads and snapshots in; --data if not given")
	f.StringVar(&b.Endpoint, "s3-endpoint", "", "`URL` of the S3 server of --blobs; Amazon's if not given")
	f.StringVar(&b.Region, "s3-region", "", "`region` of the bucket of --blobs; AWS_REGION, or what the server says, if not given")
}

// fill reads from a file what no flag has set.
func (b *bucket) fill(file map[string]string) {
	b.URL = cmp.Or(b.URL, file["blobs"])
	b.Endpoint = cmp.Or(b.Endpoint, file["s3_endpoint"])
	b.Region = cmp.Or(b.Region, file["s3_region"])
}

// check refuses what names no bucket.
func (b *bucket) check() error {
	if b.URL == "" {
		if b.Endpoint != "" || b.Region != "" {
			return usage("--s3-endpoint and --s3-region say how to reach --blobs, which is not given")
		}
		return nil
	}
	u, err := url.Parse(b.URL)
	if err != nil || u.Scheme != "s3" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return usage("--blobs is not a URL such as s3://bucket/prefix, without keys; leave it out for --data")
	}
	if b.Endpoint != "" {
		if e, err := url.Parse(b.Endpoint); err != nil || e.Host == "" || e.Scheme != "http" && e.Scheme != "https" || e.User != nil {
			return usage("--s3-endpoint is not a URL such as https://s3.example.com, without keys")
		}
	}
	return nil
}

// blobStore is a blob store that is open.
type blobStore interface {
	blob.Store
	Close() error
}

const blobDir = "blobs"

// openBlobs opens the blobs of a deployment. It is the only place that knows
// which kinds there are.
func openBlobs(ctx context.Context, data string, b bucket) (blobStore, error) {
	if err := missingBlobs(data); err != nil {
		return nil, err
	}
	if err := noteBlobs(data, b); err != nil {
		return nil, err
	}
	s, err := reachBlobs(ctx, data, b)
	if err != nil {
		return nil, err
	}
	if err := noteMade(data); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// madeFile exists if a directory of blobs was created. It is beside that directory and not
// in it, since the directory may be a mount point whose disk is missing.
const madeFile = "blobs.made"

// missingBlobs refuses a data directory whose blobs are all gone, as when their disk is
// not mounted. Otherwise sessions would take them for lost.
func missingBlobs(data string) error {
	if _, err := os.Stat(filepath.Join(data, madeFile)); err != nil {
		return nil //nolint:nilerr // there were none, as far as anybody knows
	}
	home := filepath.Join(data, blobDir)
	entries, err := os.ReadDir(home)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() != "lost+found" }) {
		return fmt.Errorf("%s is empty and was not: mount what belongs there; if it is lost, remove %s to go on without it", home, filepath.Join(data, madeFile))
	}
	if err != nil {
		return fmt.Errorf("look for blobs: %w", err)
	}
	return nil
}

// noteMade writes madeFile unless it exists.
func noteMade(data string) error {
	name := filepath.Join(data, madeFile)
	if _, err := os.Stat(name); err == nil {
		return nil
	}
	if err := atomicfile.Write(name, nil, 0o600); err != nil && !errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("note that there are blobs: %w", err)
	}
	return nil
}

func reachBlobs(ctx context.Context, data string, b bucket) (blobStore, error) {
	home := filepath.Join(data, blobDir)
	if b.URL == "" {
		return dir.Open(home)
	}
	u, err := url.Parse(b.URL)
	if err != nil {
		return nil, err
	}
	return s3.Open(ctx, s3.Options{
		Endpoint: b.Endpoint, Region: cmp.Or(b.Region, os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION")),
		Bucket: u.Host, Prefix: u.Path, Temp: home,
	})
}

// placeFile says in which bucket the blobs of a data directory are.
const placeFile = "place"

// noteBlobs records where the blobs are, and refuses another place than the recorded one:
// sessions would take blobs that they do not find for lost.
func noteBlobs(data string, b bucket) error {
	has, err := placeOf(data)
	if err != nil {
		return fmt.Errorf("look for blobs: %w", err)
	}
	wants := strings.TrimRight(b.URL, "/")
	switch {
	case has == wants:
		return nil
	case has == "here" && wants != "":
		return usage("--blobs is %s, but blobs of sessions are in %s; leave the flag out, or move the sessions with \"dormouse store export\" and import", wants, data)
	case has == "here":
		return nil
	case has != "":
		return usage("blobs of the sessions in %s are in %s; say --blobs %s, or choose another --data", data, has, has)
	}
	if err := os.MkdirAll(filepath.Join(data, blobDir), 0o700); err != nil {
		return fmt.Errorf("note where blobs are: %w", err)
	}
	return atomicfile.Write(filepath.Join(data, blobDir, placeFile), []byte(wants+"\n"), 0o600)
}

// placeOf is where the blobs of a data directory are: the URL of a bucket, "here"
// if the directory has some itself, empty if there are none yet.
func placeOf(data string) (string, error) {
	raw, err := os.ReadFile(filepath.Join(data, blobDir, placeFile))
	if err == nil {
		return strings.TrimSpace(string(raw)), nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	place := ""
	err = filepath.WalkDir(filepath.Join(data, blobDir, "sha256"), func(_ string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			place = "here"
			return fs.SkipAll
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return place, err
}

// checkBlobs puts something where the server would, reads it and deletes it.
func checkBlobs(ctx context.Context, c config) (detail string, err error) {
	if c.Blobs.URL == "" {
		return "in " + filepath.Join(c.Data, blobDir), nil // whether it can be written to is known
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := os.MkdirAll(filepath.Join(c.Data, blobDir), 0o700); err != nil {
		return "", err
	}
	s, err := reachBlobs(ctx, c.Data, c.Blobs)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	start := time.Now()
	d, err := s.Put(ctx, []byte("dormouse doctor "+rand.Text()))
	if err != nil {
		return "", err
	}
	took := time.Since(start)
	if _, err := s.Get(ctx, d); err != nil {
		return "", err
	}
	return fmt.Sprintf("in %s, a blob is stored in %v", c.Blobs.URL, took.Round(time.Millisecond)), s.Delete(ctx, d)
}
