//go:build linux

package wall

import (
	"fmt"
	"time"
)

// What a case may do to the server.
const (
	mostGrowth   = 64 << 20
	deleteWithin = 10 * time.Second
	mostLines    = 50
)

// bounds are the bounds of time, longer on a machine that is slow.
type bounds struct{ slow float64 }

func (b bounds) of(d time.Duration) time.Duration {
	return time.Duration(float64(d) * max(b.slow, 1))
}

// observed is what was seen of one case.
type observed struct {
	grew      int64         // the most memory the server had, beyond that before
	leaks     []string      // where a canary was found
	touched   []string      // what of the host was opened, written or connected to
	deleted   time.Duration // how long it took until the session was gone
	undeleted string        // why it is not gone
	neighbour string        // why another session does not answer
	died      string        // how the server ended by itself
	lines     int           // that the server wrote to its log
	mostLines int           // that it may have, if not the usual number
	forged    []string      // text of a sandbox that was neither cut nor escaped
	unsettled string        // why the session is not as it should be
}

// broke says what of that must not be.
func (o observed) broke(b bounds) (why []string) {
	if o.died != "" {
		why = append(why, "the server ended: "+o.died)
	}
	if o.grew > mostGrowth {
		why = append(why, fmt.Sprintf("the server's memory grew by %d MiB", o.grew>>20))
	}
	for _, l := range o.leaks {
		why = append(why, "a canary in "+l)
	}
	for _, t := range o.touched {
		why = append(why, "of the host was touched: "+t)
	}
	switch {
	case o.undeleted != "":
		why = append(why, "the session cannot be deleted: "+o.undeleted)
	case o.deleted > b.of(deleteWithin):
		why = append(why, fmt.Sprintf("the session was deleted after %s", o.deleted.Round(time.Millisecond)))
	}
	if o.neighbour != "" {
		why = append(why, "another session does not answer: "+o.neighbour)
	}
	most := mostLines
	if o.mostLines > 0 {
		most = o.mostLines
	}
	if o.lines > most {
		why = append(why, fmt.Sprintf("%d lines in the log, at most %d are right", o.lines, most))
	}
	for _, f := range o.forged {
		why = append(why, "text of a sandbox as it came: "+f)
	}
	if o.unsettled != "" {
		why = append(why, "the session is not as it should be: "+o.unsettled)
	}
	return why
}

// spoiled reports whether the effects of this case cannot be told from those of the next.
func (o observed) spoiled() bool {
	return o.died != "" || o.grew > mostGrowth || o.undeleted != "" || o.neighbour != ""
}
