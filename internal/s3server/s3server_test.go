package s3server_test

import (
	"os"
	"strings"
	"testing"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"go.uber.org/goleak"

	"github.com/dormouse-run/dormouse/internal/s3server"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestObjectsSurviveARestart(t *testing.T) {
	ctx := t.Context()
	s, err := s3server.Start(ctx, "first", "second")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	transport, err := minio.DefaultTransport(false)
	if err != nil {
		t.Fatal(err)
	}
	defer transport.CloseIdleConnections()
	c, err := minio.New(strings.TrimPrefix(s.URL(), "http://"), &minio.Options{
		Creds: credentials.NewStaticV4(s3server.AccessKey, s3server.SecretKey, ""), Region: s3server.Region, Transport: transport,
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.PutObject(ctx, "first", "a/b", strings.NewReader("hello"), 5, minio.PutObjectOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := s.Resume(ctx); err != nil {
		t.Fatal(err)
	}
	info, err := c.StatObject(ctx, "first", "a/b", minio.StatObjectOptions{})
	if err != nil || info.Size != 5 {
		t.Errorf("object = %d bytes, %v", info.Size, err)
	}
	if b, err := os.ReadFile(s.Path("first", "a/b")); err != nil || string(b) != "hello" {
		t.Errorf("file = %q, %v", b, err)
	}
	for bucket, want := range map[string]bool{"first": true, "second": true, "third": false} {
		if there, err := c.BucketExists(ctx, bucket); there != want || err != nil {
			t.Errorf("bucket %s = %t, %v", bucket, there, err)
		}
	}
}
