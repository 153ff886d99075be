//go:build linux

package rootfs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/dormouse-run/dormouse/internal/imagefile"
)

// fromRegistry asks a registry for an image, with the credentials in the Docker
// configuration of this server's user if there are any. With dial it never uses credentials.
// The caller must call abandon once the image is read.
func fromRegistry(ctx context.Context, ref name.Reference, dial dialer) (im *image, err error) {
	pooled, ok := remote.DefaultTransport.(*http.Transport)
	if !ok {
		return nil, errors.New("the registry client has no transport")
	}
	transport := pooled.Clone()
	transport.ResponseHeaderTimeout = stallAfter
	var keys authn.Keychain = authn.DefaultKeychain
	if dial != nil {
		transport.DialContext, keys = bypassProxies(dial), authn.NewMultiKeychain()
	}
	ctx, cancel := context.WithCancel(ctx)
	abandon := func() {
		cancel()
		transport.CloseIdleConnections()
	}
	defer func() {
		if err != nil {
			abandon()
		}
	}()
	found, err := remote.Image(ref, remote.WithContext(ctx), remote.WithPlatform(imagefile.Platform()), remote.WithTransport(transport),
		remote.WithAuthFromKeychain(keys), remote.WithUserAgent("dormouse"))
	if err != nil {
		return nil, err
	}
	im, err = remoteImage(found)
	if err != nil {
		return nil, err
	}
	im.abandon = abandon
	return im, nil
}

// bypassProxies returns a dialer that reaches the operator's own proxy directly, and
// everything else with dial: a proxy decides by itself what may be reached through it.
func bypassProxies(dial dialer) dialer {
	var plain net.Dialer
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		for _, scheme := range []string{"http", "https"} {
			at, err := http.ProxyFromEnvironment(&http.Request{URL: &url.URL{Scheme: scheme, Host: "registry.invalid"}})
			if err == nil && at != nil && withPort(at) == address {
				return plain.DialContext(ctx, network, address)
			}
		}
		return dial(ctx, network, address)
	}
}

func withPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"https": "443", "socks5": "1080", "socks5h": "1080"}[u.Scheme]
	}
	return net.JoinHostPort(u.Hostname(), cmp.Or(port, "80"))
}

func remoteImage(from v1.Image) (*image, error) {
	m, err := from.Manifest()
	if err != nil {
		return nil, fmt.Errorf("read the manifest: %w", err)
	}
	// The client reads as much as the manifest says.
	if m.Config.Size > imagefile.MaxDocument {
		return nil, fmt.Errorf("its configuration has %d bytes", m.Config.Size)
	}
	im := &image{Image: new(imagefile.Image)}
	err = im.SetManifest(m, func(digest v1.Hash) (io.ReadCloser, error) {
		l, err := from.LayerByDigest(digest)
		if err != nil {
			return nil, err
		}
		return l.Compressed()
	})
	if err != nil {
		return nil, err
	}
	if im.Digest, err = from.Digest(); err != nil {
		return nil, err
	}
	raw, err := from.RawConfigFile()
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	im.Config, err = imagefile.ParseConfig(raw)
	return im, err
}
