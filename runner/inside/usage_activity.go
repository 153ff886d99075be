package inside

import (
	"io"
	"sync/atomic"
	"time"
)

// activity is the time of the last activity of an op, a terminal or a port.
type activity struct{ at atomic.Int64 }

func (a *activity) touch() { a.at.Store(time.Now().UnixNano()) }

// during counts everything until done as activity.
func (a *activity) during(done <-chan struct{}) {
	a.touch()
	<-done
	a.touch()
}

func (a *activity) last() time.Time {
	if at := a.at.Load(); at != 0 {
		return time.Unix(0, at)
	}
	return time.Time{}
}

// relay copies bytes until src ends or either fails, and counts each as activity.
func (a *activity) relay(dst io.Writer, src io.Reader) {
	buf := make([]byte, 32<<10)
	for {
		n, err := src.Read(buf)
		if n > 0 {
			a.touch()
			if _, err := dst.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
