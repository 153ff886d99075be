// Package s3 stores blobs as objects in a bucket, on any server that speaks S3:
// PREFIX/sha256/ab/abcdef…, one object per digest. It trusts neither the server nor the
// network: Put verifies that what was put is there before it returns, and what is read is
// compared with its digest.
//
// Beside the objects there are empty ones for collection: the time of
// PREFIX/put/ab/abcdef… says when a blob that was there already was last put, and
// PREFIX/collecting/abcdef…/… says that a collector may be about to delete it; see
// Collect.
package s3

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/blob"
)

// Options say where the blobs are.
type Options struct {
	// Endpoint is the URL of the server; Amazon's if empty.
	Endpoint string
	// Region is where the bucket is; the server is asked if it is empty.
	Region string
	// Bucket must exist. Objects outside of Prefix are never touched.
	Bucket, Prefix string
	// AccessKey, SecretKey and Token are our credentials. If empty they are looked for
	// where other programs do: AWS_ACCESS_KEY_ID and the like, ~/.aws/credentials, the
	// role of the machine.
	AccessKey, SecretKey, Token string
	// Temp is a directory for streams on their way; the system's if empty.
	Temp string
	// Patience is how long the server may be silent before a request is given up;
	// 15 seconds if zero.
	Patience time.Duration
	// Tries is how often a request is sent before an error of the server or of the
	// network is returned; 4 if zero.
	Tries int
}

// Store is a bucket of blobs, which several processes may use at once.
type Store struct {
	opts   Options
	client *minio.Core
	// once sends every request a single time: what is sent twice may be executed
	// long after it was answered.
	once      *minio.Core
	transport *http.Transport
	// grace is how long a collector waits between announcing itself and deleting.
	grace time.Duration

	unconditional atomic.Bool // the server knows no If-None-Match
	suspect       sync.Map    // digests whose bytes were found to be others
}

var _ blob.Store = (*Store)(nil)

// Open opens the blobs in a bucket.
func Open(ctx context.Context, o Options) (*Store, error) {
	if o.Patience == 0 {
		o.Patience = 15 * time.Second
	}
	if o.Tries == 0 {
		o.Tries = 4
	}
	o.Prefix = strings.Trim(path.Clean("/"+o.Prefix), "/")
	s := &Store{opts: o, transport: newTransport(o.Patience), grace: 30 * time.Second}
	err := s.connect(ctx)
	if err != nil {
		s.transport.CloseIdleConnections()
		return nil, fmt.Errorf("open blobs in %s: %w", s, err)
	}
	return s, nil
}

func (s *Store) connect(ctx context.Context) error {
	host, secure, err := endpoint(s.opts.Endpoint)
	if err != nil {
		return err
	}
	o := &minio.Options{
		Creds: s.credentials(), Secure: secure, Transport: s.transport, Region: s.opts.Region, MaxRetries: s.opts.Tries,
	}
	if s.client, err = minio.NewCore(host, o); err != nil {
		return err
	}
	o.MaxRetries = 1
	if s.once, err = minio.NewCore(host, o); err != nil {
		return err
	}
	return s.checkBucket(ctx)
}

func (s *Store) credentials() *credentials.Credentials {
	if s.opts.AccessKey != "" {
		return credentials.NewStaticV4(s.opts.AccessKey, s.opts.SecretKey, s.opts.Token)
	}
	// The library asks the environment for these whenever credentials run out, and it may
	// have been cleared by then.
	role := &credentials.IAM{Client: &http.Client{Timeout: 10 * time.Second}}
	if uri := os.Getenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"); uri != "" {
		role.Container.CredentialsRelativeURI, role.Container.AuthorizationToken = uri, os.Getenv("AWS_CONTAINER_AUTHORIZATION_TOKEN")
	}
	return credentials.NewChainCredentials([]credentials.Provider{new(credentials.EnvAWS), new(credentials.FileAWSCredentials), role})
}

// endpoint takes the URL of a server apart.
func endpoint(raw string) (host string, secure bool, err error) {
	if raw == "" {
		return "s3.amazonaws.com", true, nil
	}
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || strings.Trim(u.Path, "/") != "" || u.User != nil {
		return "", false, fmt.Errorf("the endpoint is not a URL such as https://s3.example.com: %w", dormouse.ErrInvalid)
	}
	return u.Host, u.Scheme == "https", nil
}

// checkBucket fails unless the bucket exists.
func (s *Store) checkBucket(ctx context.Context) error {
	exists, err := s.client.BucketExists(ctx, s.opts.Bucket)
	if err == nil && !exists {
		err = errors.New("there is no such bucket")
	}
	return classify(ctx, err)
}

// String says where the blobs are.
func (s *Store) String() string { return "s3://" + path.Join(s.opts.Bucket, s.opts.Prefix) }

// Close closes the connections to the server.
func (s *Store) Close() error {
	s.transport.CloseIdleConnections()
	return nil
}

// The kinds of objects.
const (
	blobs      = "sha256"     // the bytes
	stamps     = "put"        // when they were last put, if not when they were stored
	collecting = "collecting" // announcements of collectors that may be about to delete them
)

// key is the key of an object of a kind. The digest must be valid.
func (s *Store) key(kind string, d dormouse.Digest) string {
	hex := strings.TrimPrefix(string(d), "sha256:")
	return path.Join(s.opts.Prefix, kind, hex[:2], hex)
}

func valid(d dormouse.Digest) bool { return d.Validate() == nil }

// prefix begins the keys of a kind.
func (s *Store) prefix(kind string) string { return path.Join(s.opts.Prefix, kind) + "/" }

// Delete deletes d.
func (s *Store) Delete(ctx context.Context, d dormouse.Digest) error {
	if err := context.Cause(ctx); err != nil {
		return fmt.Errorf("delete %s: %w", d, err)
	}
	if !valid(d) {
		return nil // it cannot be there
	}
	for _, kind := range []string{blobs, stamps} {
		if err := s.remove(ctx, s.client, s.key(kind, d)); err != nil {
			return fmt.Errorf("delete %s: %w", d, err)
		}
	}
	return nil
}

// remove deletes an object, which need not be there.
func (s *Store) remove(ctx context.Context, with *minio.Core, key string) error {
	err := classify(ctx, with.RemoveObject(ctx, s.opts.Bucket, key, minio.RemoveObjectOptions{}))
	if errors.Is(err, dormouse.ErrNotFound) {
		return nil
	}
	return err
}
