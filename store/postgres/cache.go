package postgres

import (
	"github.com/dormouse-run/dormouse/store"
)

// cached is what a writer has written of a session itself under an epoch. No other
// writer writes under it, so what has not changed is not written again.
type cached struct {
	epoch  store.Epoch
	labels labelSum // zero: not known
}

// maxCached bounds how many sessions are cached.
const maxCached = 1 << 16

// updateCache caches what a job wrote, or drops the session if the job may have failed.
func (w *writer) updateCache(j *job, err error) {
	id := j.batch.Session
	if err != nil || j.alone != nil || j.creates {
		delete(w.cache, id)
		return
	}
	if j.batch.Rows == nil {
		return
	}
	c := w.cache[id]
	if c.epoch != j.batch.Epoch {
		if len(w.cache) >= maxCached {
			clear(w.cache)
		}
		c = cached{epoch: j.batch.Epoch}
	}
	c.labels = j.encoded.labels.sum
	w.cache[id] = c
}
