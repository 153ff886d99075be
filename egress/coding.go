package egress

import (
	"bufio"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// maxWindow bounds the memory for reading one compressed body.
const maxWindow = 8 << 20

// unreadable is an answer that could hide a secret.
func unreadable(t target, why string) error {
	return answer{http.StatusBadGateway, verdictUnreachable, t.String() + " answered what cannot be searched for the credential it was sent: " + why + "."}
}

// decode replaces a compressed body of an answer by a plain one. It asks for none, but
// there may be one all the same.
func decode(res *http.Response, to target) error {
	coding := strings.ToLower(strings.TrimSpace(strings.Join(res.Header.Values("Content-Encoding"), ",")))
	if coding == "" || coding == "identity" || !bodied(res) {
		return nil
	}
	if res.StatusCode == http.StatusPartialContent {
		return unreadable(to, "it is a part of a compressed body")
	}
	plain, err := decoder(coding, res.Body)
	if err != nil {
		return unreadable(to, err.Error())
	}
	started := bufio.NewReaderSize(plain, bufferSize)
	if _, err := started.Peek(1); err != nil && !errors.Is(err, io.EOF) {
		return unreadable(to, "its "+coding+" cannot be read")
	}
	res.Body = &decoded{started, plain, res.Body}
	res.ContentLength = -1
	// What is about the compressed bytes is no longer true.
	for _, name := range []string{"Content-Encoding", "Content-Length", "Content-MD5", "Digest", "Content-Digest", "Repr-Digest", "Accept-Ranges"} {
		res.Header.Del(name)
	}
	if tag := res.Header.Get("ETag"); strings.HasPrefix(tag, `"`) {
		res.Header.Set("ETag", "W/"+tag)
	}
	return nil
}

// bodied reports whether an answer can have a body.
func bodied(res *http.Response) bool {
	return (res.Request == nil || res.Request.Method != http.MethodHead) && res.ContentLength != 0 &&
		res.StatusCode != http.StatusNoContent && res.StatusCode != http.StatusNotModified
}

// decoder reads a coding. It waits for the first bytes of the body.
func decoder(coding string, from io.Reader) (io.Reader, error) {
	switch coding {
	case "gzip", "x-gzip":
		z, err := gzip.NewReader(from)
		if err != nil {
			return nil, fmt.Errorf("its gzip cannot be read: %w", err)
		}
		return z, nil
	case "deflate":
		return inflate(bufio.NewReader(from))
	case "zstd":
		z, err := zstd.NewReader(from, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, fmt.Errorf("its zstd cannot be read: %w", err)
		}
		return z.IOReadCloser(), nil
	}
	return nil, fmt.Errorf("it is compressed as %.40q", coding)
}

// inflate reads deflate, which is zlib's by the standard and bare by habit of some.
func inflate(from *bufio.Reader) (io.Reader, error) {
	const method, methodMask, check = 8, 0x0f, 31
	head, err := from.Peek(2)
	if err == nil && head[0]&methodMask == method && (int(head[0])<<8|int(head[1]))%check == 0 {
		z, err := zlib.NewReader(from)
		if err != nil {
			return nil, fmt.Errorf("its deflate cannot be read: %w", err)
		}
		return z, nil
	}
	return flate.NewReader(from), nil
}

// decoded is a body that was compressed.
type decoded struct {
	io.Reader
	decoder io.Reader
	from    io.ReadCloser
}

// Read reads what was decoded. The trailers are behind the end of the body, which a decoder
// need not have seen when it is done.
func (d *decoded) Read(b []byte) (int, error) {
	n, err := d.Reader.Read(b)
	if errors.Is(err, io.EOF) {
		_, _ = io.CopyN(io.Discard, d.from, bufferSize)
	}
	return n, err
}

// Close closes both.
func (d *decoded) Close() error {
	if c, ok := d.decoder.(io.Closer); ok {
		_ = c.Close()
	}
	return d.from.Close()
}
