package transfer

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/atomicfile"
	"github.com/dormouse-run/dormouse/store/archive"
)

// Exported is what an export did.
type Exported struct {
	archive.Total
	Bytes  int64           `json:"bytes"`
	Digest dormouse.Digest `json:"digest"`
	// Skipped is how many sessions are not in it, because only a newer program can fold them.
	Skipped int `json:"skipped"`
}

// Export writes an archive of a deployment.
func Export(ctx context.Context, d Deployment, out io.Writer, p Progress) (Exported, error) {
	x := &exporter{from: d, progress: p}
	return x.write(ctx, out)
}

// ExportFile writes an archive of a deployment to a file, which has its name only when it
// is whole and durable.
func ExportFile(ctx context.Context, d Deployment, path string, p Progress) (done Exported, err error) {
	err = atomicfile.WritePart(path, func(w io.Writer) error {
		done, err = Export(ctx, d, w, p)
		return err
	})
	return done, err
}

// exporter writes a deployment to an archive.
type exporter struct {
	from     Deployment
	to       *archive.Writer
	progress Progress
	sessions int // so far
	skipped  int // sessions that only a newer program can export
}

func (x *exporter) write(ctx context.Context, out io.Writer) (done Exported, err error) {
	counted := &counter{w: out}
	buffered := bufio.NewWriterSize(counted, 1<<20)
	if x.to, err = archive.NewWriter(buffered); err != nil {
		return done, err
	}
	if err := x.documents(ctx); err != nil {
		return done, err
	}
	err = EachSession(ctx, x.from.Store, func(id dormouse.SessionID) error {
		err := x.session(ctx, id)
		if errors.Is(err, errSkipped) {
			x.progress.Note("%s: is not in the archive: %v", id, err)
			x.skipped++
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", id, err)
		}
		x.sessions++
		return nil
	})
	if err != nil {
		return done, err
	}
	if done.Digest, done.Total, err = x.to.Close(); err != nil {
		return done, err
	}
	err = buffered.Flush()
	done.Bytes, done.Skipped = counted.n, x.skipped
	return done, err
}

// counter counts what is written.
type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}
