package postgres

import (
	"github.com/dormouse-run/dormouse/store"
)

// known is what a writer has written of a session itself under an epoch. Nobody
// else writes under it, so what has not changed is not written again.
type known struct {
	epoch  store.Epoch
	labels fingerprint // zero: not known
}

// remembered bounds what is kept in memory.
const remembered = 1 << 16

// remember keeps what a job wrote, or forgets the session if it may not have.
func (w *writer) remember(j *job, err error) {
	id := j.batch.Session
	if err != nil || j.alone != nil || j.birth {
		delete(w.known, id)
		return
	}
	if j.batch.Rows == nil {
		return
	}
	k := w.known[id]
	if k.epoch != j.batch.Epoch {
		if len(w.known) >= remembered {
			clear(w.known)
		}
		k = known{epoch: j.batch.Epoch}
	}
	k.labels = j.spelled.labels.mark
	w.known[id] = k
}
